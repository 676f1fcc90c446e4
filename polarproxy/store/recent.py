"""The latest of a kind for each session, so that only what the next one adds has to be gone through."""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeVar

T = TypeVar("T")

MAX_BYTES = 128 << 20


class Recent(Generic[T]):
    """One for each session. Bounded in bytes: what is latest longest goes first, and an entry that is gone only costs time."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._latest: OrderedDict[str, tuple[T, int]] = OrderedDict()

    def of(self, session_id: str) -> T | None:
        """The latest of a session. None: none is at hand."""
        known = self._latest.get(session_id)
        return None if known is None else known[0]

    def remember(self, session_id: str, latest: T, size: int) -> None:
        """`latest` is the latest of its session, and takes so many bytes."""
        earlier = self._latest.pop(session_id, None)
        self._latest[session_id] = latest, size
        self._bytes += size if earlier is None else size - earlier[1]
        while self._bytes > self._max_bytes:
            self._bytes -= self._latest.popitem(last=False)[1][1]
