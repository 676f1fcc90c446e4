"""Send a body to the client as the faults say: late, in odd pieces, or not to its end."""

import asyncio
import json
import socket
import struct
from collections.abc import Iterable, Iterator
from itertools import cycle

from aiohttp import web

from tests.fakes.chat_sse import DONE
from tests.fakes.errors import EngineError, engine_died
from tests.fakes.faults import Faults


class Ended(Exception):
    """The scripted end of a body has come."""


class HungUp(Exception):
    """The connection was closed on purpose."""


def failed(error: EngineError) -> tuple[bytes, bytes]:
    """The events of a stream that cannot go on."""
    return b"data: " + json.dumps(error.body).encode() + b"\n\n", DONE


class Sender:
    """Sends the events of one reply. `sent` counts those handed to the socket."""

    def __init__(
        self, request: web.Request, response: web.StreamResponse, faults: Faults, released: asyncio.Event
    ) -> None:
        self.sent = 0
        self._request, self._response, self._faults, self._released = request, response, faults, released
        self._sizes = cycle(faults.chop)
        self._pending = b""

    async def send(self, events: Iterable[bytes]) -> None:
        await asyncio.sleep(self._faults.first_byte_delay)
        await self._response.prepare(self._request)
        try:
            for event in events:
                await self._before_event()
                await self._write(event)
                self.sent += 1
                if self._faults.event_delay:
                    await asyncio.sleep(self._faults.event_delay)
            await self._before_event()
        except Ended:
            pass
        except HungUp:
            return
        await self._flush()
        await self._response.write_eof()

    async def _before_event(self) -> None:
        faults = self._faults
        if self.sent == faults.hold_after:
            await self._flush()
            await self._released.wait()
        if self.sent == faults.error_after:
            await self._write(b"".join(failed(engine_died())))
            raise Ended
        if self.sent == faults.end_after:
            raise Ended
        if self.sent in (faults.cut_after, faults.reset_after):
            await self._flush()
            hang_up(self._request, reset=self.sent == faults.reset_after)
            raise HungUp

    async def _write(self, data: bytes) -> None:
        if not self._faults.chop:
            await self._response.write(data)
            return
        self._pending += data
        for piece in self._pieces():
            await self._response.write(piece)
            await asyncio.sleep(0)

    def _pieces(self) -> Iterator[bytes]:
        size = next(self._sizes)
        while len(self._pending) >= size:
            piece, self._pending = self._pending[:size], self._pending[size:]
            yield piece
            size = next(self._sizes)

    async def _flush(self) -> None:
        if self._pending:
            await self._response.write(self._pending)
            self._pending = b""


def hang_up(request: web.Request, *, reset: bool) -> None:
    """Close the connection at once: with a FIN after what was written, or with a RST."""
    transport = request.transport
    if transport is None:
        return
    if reset:
        # Without lingering the kernel answers a close with a reset.
        peer = transport.get_extra_info("socket")
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        transport.abort()
    else:
        transport.close()
