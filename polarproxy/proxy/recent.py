"""What is known of each session's latest request, so that only what the next one adds has to be read."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from polarproxy.engine.ids import ParsedIds
    from polarproxy.wire.chat.begun import Begun

_MAX_BYTES = 128 << 20

T = TypeVar("T")


class Recent(Generic[T]):
    """One of a kind for each session. Bounded in bytes; an entry that is gone only costs time."""

    def __init__(self, size: Callable[[T], int], max_bytes: int = _MAX_BYTES) -> None:
        """`size` tells how many bytes an entry takes."""
        self._size = size
        self._max_bytes = max_bytes
        self._bytes = 0
        self._latest: OrderedDict[str, T] = OrderedDict()

    def of(self, session_id: str) -> T | None:
        """The latest of a session. None: none is at hand."""
        return self._latest.get(session_id)

    def remember(self, session_id: str, latest: T) -> None:
        """`latest` is the latest of its session."""
        self._forget(session_id)
        self._latest[session_id] = latest
        self._bytes += self._size(latest)
        while self._bytes > self._max_bytes:
            self._forget(next(iter(self._latest)))

    def _forget(self, session_id: str) -> None:
        known = self._latest.pop(session_id, None)
        if known is not None:
            self._bytes -= self._size(known)


def recent_prompts() -> Recent[ParsedIds]:
    """The prompts of sessions."""
    return Recent(lambda prompt: len(prompt.text) + len(prompt.ids.raw))


def recent_requests() -> Recent[Begun]:
    """The requests of sessions."""
    return Recent(lambda begun: len(begun.body))
