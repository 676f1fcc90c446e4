"""An HTTP/1.1 message reader small enough not to be the thing measured.

Both ends of the benchmark use it: the engine for requests, the load client for replies. It understands a
head, a body of known length and a chunked body, which is all that the targets send.
"""

from __future__ import annotations

import re
from enum import Enum, auto
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_LENGTH = re.compile(rb"\r\ncontent-length:\s*(\d+)", re.IGNORECASE)
_CHUNKED = re.compile(rb"\r\ntransfer-encoding:\s*chunked", re.IGNORECASE)


class _State(Enum):
    HEAD = auto()
    FIXED = auto()
    CHUNKED = auto()


class MessageReader:
    """Feed bytes; `on_head(head)`, `on_body(piece)` (zero or more) and `on_end()` are called for each message."""

    __slots__ = ("_buffer", "_left", "_on_body", "_on_end", "_on_head", "_state")

    def __init__(
        self, on_head: Callable[[bytes], None], on_body: Callable[[bytes], None], on_end: Callable[[], None]
    ) -> None:
        self._on_head = on_head
        self._on_body = on_body
        self._on_end = on_end
        self._state = _State.HEAD
        self._buffer = b""
        # FIXED: body bytes still to come. CHUNKED: bytes still to come of the chunk being read, 0 between chunks.
        self._left = 0

    def feed(self, data: bytes) -> None:
        """Raises ValueError when a chunk size is not hexadecimal."""
        while data:
            match self._state:
                case _State.HEAD:
                    data = self._feed_head(data)
                case _State.FIXED:
                    data = self._feed_fixed(data)
                case _State.CHUNKED:
                    data = self._feed_chunked(data)

    def _feed_head(self, data: bytes) -> bytes:
        data = self._buffer + data
        end = data.find(b"\r\n\r\n")
        if end < 0:
            self._buffer = data
            return b""
        self._buffer = b""
        head = data[:end]
        self._on_head(head)
        if _CHUNKED.search(head):
            self._state, self._left = _State.CHUNKED, 0
        else:
            length = _LENGTH.search(head)
            self._state, self._left = _State.FIXED, int(length[1]) if length else 0
            if not self._left:
                self._finish()
        return data[end + 4 :]

    def _feed_fixed(self, data: bytes) -> bytes:
        piece, rest = data[: self._left], data[self._left :]
        self._left -= len(piece)
        self._on_body(piece)
        if not self._left:
            self._finish()
        return rest

    def _feed_chunked(self, data: bytes) -> bytes:
        if self._left:
            piece, rest = data[: self._left], data[self._left :]
            self._left -= len(piece)
            self._on_body(piece)
            return rest
        data = self._buffer + data
        # The line break that ends the chunk before is taken as part of this chunk's size line.
        start = 2 if data.startswith(b"\r\n") else 0
        end = data.find(b"\r\n", start)
        if end < 0:
            self._buffer = data
            return b""
        self._left = int(data[start:end].split(b";")[0], 16)
        if self._left:
            self._buffer = b""
            return data[end + 2 :]
        if len(data) < end + 4:
            self._buffer = data
            self._left = 0
            return b""
        self._buffer = b""
        self._finish()
        return data[end + 4 :]

    def _finish(self) -> None:
        self._state = _State.HEAD
        self._on_end()
