"""Holding requests back while weights are changed: they wait, up to a limit, and their clients get signs of life."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from polarproxy.errors import Paused
from polarproxy.wire.chat.errors import read_error

if TYPE_CHECKING:
    from collections.abc import Mapping

    from multidict import CIMultiDict

    from polarproxy.model import Dialect
    from polarproxy.proxy.outlet import Outlet
    from polarproxy.proxy.replies import Refusal
    from polarproxy.proxy.speech import Speech


class Gate:
    """Open, or closed while generation is paused. What is with the engines already goes on."""

    def __init__(self, limit: float) -> None:
        self._limit = limit
        self._opened = asyncio.Event()
        self._opened.set()
        self._closed_at = 0.0
        self.waiting = 0
        """Requests that wait."""

    @property
    def paused(self) -> bool:
        """Whether requests wait."""
        return not self._opened.is_set()

    @property
    def paused_s(self) -> float:
        """Seconds since it was closed; 0 while it is open."""
        return time.monotonic() - self._closed_at if self.paused else 0.0

    def close(self) -> None:
        """Requests that come from now on wait."""
        if not self.paused:
            self._closed_at = time.monotonic()
            self._opened.clear()

    def open(self) -> None:
        """Requests that wait go on."""
        self._opened.set()

    async def pass_through(self, outlet: WaitingOutlet, keepalive: float) -> None:
        """Waits until it is open. Raises `Paused` after the limit.

        A stream is begun when it would be silent for longer than `keepalive` seconds (0: never).
        """
        deadline = time.monotonic() + self._limit
        self.waiting += 1
        try:
            while self.paused:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise Paused(
                        f"generation is paused, and was not resumed within the {self._limit:g} s that a request waits"
                    )
                silent = min(left, keepalive or left)
                if not await self._wait(silent) and silent < left:
                    await outlet.live()
        finally:
            self.waiting -= 1

    async def _wait(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await self._opened.wait()
        except TimeoutError:
            return False
        return True


class WaitingOutlet:
    """An outlet whose stream may have begun before the engine was asked: what goes wrong later is said in the stream."""

    def __init__(self, outlet: Outlet, speech: Speech) -> None:
        self._outlet, self._speech = outlet, speech
        self.begun = False

    async def live(self) -> None:
        """A sign of life, where the client's dialect has one; it begins the stream."""
        sign = self._speech.keepalive if self._speech.streamed else None
        if sign is None:
            return
        await self.begin(self._speech.head({}))
        await self._outlet.write(sign)

    async def begin(self, head: CIMultiDict[str]) -> None:
        if not self.begun:
            self.begun = True
            await self._outlet.begin(head)

    async def write(self, data: bytes) -> None:
        await self._outlet.write(data)

    async def end(self, data: bytes) -> None:
        await self._outlet.end(data)

    async def answer(self, status: int, head: Mapping[str, str], body: bytes) -> None:
        if self.begun:
            await self._outlet.break_off(self._speech.failure(status, read_error(body)[1]))
        else:
            await self._outlet.answer(status, head, body)

    async def refuse(self, refusal: Refusal, dialect: Dialect) -> None:
        if self.begun:
            await self._outlet.break_off(self._speech.failure(refusal.status, refusal.message))
        else:
            await self._outlet.refuse(refusal, dialect)

    async def break_off(self, last: bytes) -> None:
        await self._outlet.break_off(last)

    @property
    def open(self) -> bool:
        return self._outlet.open
