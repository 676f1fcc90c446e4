"""A sign of life on streams that are silent for long, in what the client's dialect passes over."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import TracebackType

    from polarproxy.proxy.outlet import Outlet
    from polarproxy.proxy.relay import StreamRelay
    from polarproxy.proxy.speech import Speech


class KeepAlive:
    """While the block runs, a stream that has been silent for `seconds` gets one. Costs one timer a stream."""

    def __init__(self, outlet: Outlet, speech: Speech, seconds: float, relay: StreamRelay) -> None:
        self._outlet = outlet
        self._sign = speech.keepalive if speech.streamed else None
        self._seconds = seconds
        self._relay = relay
        self._timer: asyncio.TimerHandle | None = None
        self._writing: asyncio.Task[None] | None = None

    def __enter__(self) -> None:
        if self._sign is not None and self._seconds > 0:
            self._wait(self._seconds)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _wait(self, seconds: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(seconds, self._look)

    def _look(self) -> None:
        silent = time.monotonic() - self._relay.wrote_at
        if silent < self._seconds:
            self._wait(self._seconds - silent)
            return
        assert self._sign is not None
        self._relay.wrote_at = time.monotonic()
        self._writing = asyncio.create_task(self._write(self._sign))
        self._wait(self._seconds)

    async def _write(self, sign: bytes) -> None:
        if self._timer is None:
            return  # the stream went on to its end since this task was made
        with suppress(ConnectionResetError):  # the client is gone; the relay notices by itself
            await self._outlet.write(sign)
