"""The body of an answer on its way from the connection to the one task that reads it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from polarproxy.errors import PolarproxyError

HIGH_WATER = 1 << 18
"""Bytes waiting to be read above which the connection is not read any more: a slow client is no reason to hold a whole
stream in memory."""


class Flow(Protocol):
    """What a body can do to the connection that it comes from."""

    def pause_reading(self) -> None:
        """Lets the engine's bytes wait in the kernel."""

    def resume_reading(self) -> None:
        """Takes them in again."""


class Body:
    """Pieces that have come in and not been read; bytes before a fault are read before it is raised."""

    __slots__ = ("_flow", "_paused", "_pieces", "_size", "_waiter", "_whole", "ended", "fault")

    def __init__(self, flow: Flow) -> None:
        self._flow = flow
        self._pieces: list[bytes] = []
        self._size = 0
        self._paused = False
        self._whole = False
        """Whether the reader waits for the end, and wants to hear of nothing before."""
        self._waiter: asyncio.Future[None] | None = None
        self.ended = False
        """Whether nothing more will come in."""
        self.fault: PolarproxyError | None = None
        """Why it ended before it was whole. None: it has not."""

    def feed(self, piece: bytes) -> None:
        """One more piece, not empty."""
        self._pieces.append(piece)
        if self._whole:
            return
        self._size += len(piece)
        if self._size > HIGH_WATER and not self._paused:
            self._paused = True
            self._flow.pause_reading()
        if self._waiter is not None:
            self._wake()

    def end(self, fault: PolarproxyError | None = None) -> None:
        """Nothing more comes in. `fault`: why the body is not whole."""
        self.ended, self.fault = True, fault
        self._resume()
        if self._waiter is not None:
            self._wake()

    async def readany(self) -> bytes:
        """What has come in, at least one byte; empty at the end. Raises `EngineTimeout`, `EngineUnreachable`."""
        if not self._pieces:
            if not self.ended:
                await self._wait()
            if self.fault is not None and not self._pieces:
                raise self.fault
        return self._take()

    async def iter_any(self) -> AsyncIterator[bytes]:
        """The pieces as they come in; raises `EngineTimeout`, `EngineUnreachable`."""
        while piece := await self.readany():
            yield piece

    async def read(self) -> bytes:
        """All that is left, whole or not: `fault` tells."""
        self._whole = True
        self._resume()
        if not self.ended:
            await self._wait()
        return self._take()

    def _take(self) -> bytes:
        pieces = self._pieces
        self._pieces, self._size = [], 0
        if self._paused:
            self._resume()
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    async def _wait(self) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _resume(self) -> None:
        if self._paused:
            self._paused = False
            self._flow.resume_reading()
