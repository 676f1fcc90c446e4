"""Each session's latest prompt, so that only what the next one adds has to be read."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from polarproxy.engine.ids import ParsedIds

_MAX_BYTES = 128 << 20


class RecentPrompts:
    """Bounded in bytes; an entry that is gone only costs time."""

    def __init__(self, max_bytes: int = _MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._prompts: OrderedDict[str, ParsedIds] = OrderedDict()

    def of(self, session_id: str) -> ParsedIds | None:
        """The latest prompt of a session. None: none is at hand."""
        return self._prompts.get(session_id)

    def remember(self, session_id: str, prompt: ParsedIds) -> None:
        """`prompt` is the latest of its session."""
        self._forget(session_id)
        self._prompts[session_id] = prompt
        self._bytes += _size(prompt)
        while self._bytes > self._max_bytes:
            self._forget(next(iter(self._prompts)))

    def _forget(self, session_id: str) -> None:
        known = self._prompts.pop(session_id, None)
        if known is not None:
            self._bytes -= _size(known)


def _size(prompt: ParsedIds) -> int:
    return len(prompt.text) + len(prompt.ids.raw)
