"""The client's end of a reply: an HTTP response, or messages on a WebSocket."""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import TYPE_CHECKING, Protocol

from aiohttp import WSCloseCode, web

from polarproxy.wire.responses.socket import error_frame, of_events

if TYPE_CHECKING:
    from collections.abc import Mapping

    from multidict import CIMultiDict

    from polarproxy.model import Dialect
    from polarproxy.proxy.replies import Refusal


_READ_S = 0.1
"""How long a client has to read what it was sent before its connection is reset."""
_NO_LINGER = struct.pack("ii", 1, 0)


class Outlet(Protocol):
    """Takes the bytes of one reply. Every method may raise `ConnectionResetError`: the client is gone."""

    async def begin(self, head: CIMultiDict[str]) -> None:
        """A stream begins."""
        ...

    async def write(self, data: bytes) -> None:
        """More of the stream."""
        ...

    async def end(self, data: bytes) -> web.StreamResponse:
        """The last of the stream."""
        ...

    async def answer(self, status: int, head: Mapping[str, str], body: bytes) -> web.StreamResponse:
        """A reply in one piece, or the engine's own error."""
        ...

    async def refuse(self, refusal: Refusal, dialect: Dialect) -> web.StreamResponse:
        """An error in place of a reply."""
        ...

    async def break_off(self, last: bytes) -> web.StreamResponse:
        """The stream failed, and must not look like one that ended. `last`: what tells the client; without it, a reset."""
        ...

    @property
    def open(self) -> bool:
        """Whether the client was still there when last heard of."""
        ...


class HttpOutlet:
    """An HTTP response."""

    def __init__(self, http: web.Request) -> None:
        self._http = http
        self._stream = web.StreamResponse()

    async def begin(self, head: CIMultiDict[str]) -> None:
        self._stream = web.StreamResponse(headers=head)
        await self._stream.prepare(self._http)

    async def write(self, data: bytes) -> None:
        await self._stream.write(data)

    async def end(self, data: bytes) -> web.StreamResponse:
        await self._stream.write_eof(data)
        return self._stream

    async def answer(self, status: int, head: Mapping[str, str], body: bytes) -> web.StreamResponse:
        response = web.Response(status=status, headers=head, body=body)
        await response.prepare(self._http)
        await response.write_eof()
        return response

    async def refuse(self, refusal: Refusal, dialect: Dialect) -> web.StreamResponse:
        return await self.answer(*refusal.said(dialect))

    async def break_off(self, last: bytes) -> web.StreamResponse:
        if last:
            await self._stream.write(last)
        else:
            # A reset takes with it what the client has not read yet.
            await asyncio.sleep(_READ_S)
        transport = self._http.transport
        if transport is None:
            return self._stream
        if last:
            transport.close()
        else:
            transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
            transport.abort()
        return self._stream

    def abort(self) -> None:
        """Gives the client up; whoever waits for it to read gets `ConnectionResetError`."""
        if self._http.transport is not None:
            self._http.transport.abort()

    @property
    def open(self) -> bool:
        transport = self._http.transport
        return transport is not None and not transport.is_closing()


class SocketOutlet:
    """Messages on a WebSocket, which outlives the reply: one message for each event of the stream."""

    def __init__(self, socket: web.WebSocketResponse, stream_id: str | None = None) -> None:
        self._socket = socket
        self._stream_id = stream_id
        self.failed = False
        """Whether a reply broke off; then the socket is to be closed."""

    async def begin(self, head: CIMultiDict[str]) -> None:
        return

    async def write(self, data: bytes) -> None:
        for frame in of_events(data, self._stream_id):
            await self.send(frame)

    async def send(self, frame: bytes) -> None:
        """One message."""
        await self._socket.send_str(frame.decode())

    async def end(self, data: bytes) -> web.StreamResponse:
        await self.write(data)
        return self._socket

    async def answer(self, status: int, head: Mapping[str, str], body: bytes) -> web.StreamResponse:
        raise AssertionError("replies on a WebSocket are always streamed")

    async def refuse(self, refusal: Refusal, dialect: Dialect) -> web.StreamResponse:
        status, head, body = refusal.said(dialect)
        await self.send(error_frame(status, body, head.get("Retry-After"), self._stream_id))
        return self._socket

    async def break_off(self, last: bytes) -> web.StreamResponse:
        await self.write(last)
        self.failed = True
        return self._socket

    @property
    def open(self) -> bool:
        return not self._socket.closed


CLOSE_AFTER_FAILURE = WSCloseCode.INTERNAL_ERROR
