"""The client's end of a reply: an HTTP answer, or messages on a WebSocket."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Protocol

from aiohttp import WSCloseCode

from polarproxy.wire.responses.socket import error_frame, of_events

if TYPE_CHECKING:
    from collections.abc import Coroutine, Mapping

    from aiohttp import web
    from multidict import CIMultiDict

    from polarproxy.model import Dialect
    from polarproxy.proxy.replies import Refusal
    from polarproxy.proxy.server.request import Request

_READ_S = 0.1
"""How long a client has to read what it was sent before its connection is reset."""


class Outlet(Protocol):
    """Takes the bytes of one reply. Every method may raise `ConnectionResetError`: the client is gone."""

    async def begin(self, head: CIMultiDict[str]) -> None:
        """A stream begins."""
        ...

    async def write(self, data: bytes) -> None:
        """More of the stream."""
        ...

    async def end(self, data: bytes) -> None:
        """The last of the stream."""
        ...

    async def answer(self, status: int, head: Mapping[str, str], body: bytes) -> None:
        """A reply in one piece, or the engine's own error."""
        ...

    async def refuse(self, refusal: Refusal, dialect: Dialect) -> None:
        """An error in place of a reply."""
        ...

    async def break_off(self, last: bytes) -> None:
        """The stream failed, and must not look like one that ended. `last`: what tells the client; without it, a reset."""
        ...

    @property
    def open(self) -> bool:
        """Whether the client was still there when last heard of."""
        ...


class HttpOutlet:
    """An HTTP answer."""

    def __init__(self, http: Request) -> None:
        self._http = http

    # Handed on, and not awaited here, which would cost every event of a stream.

    def begin(self, head: CIMultiDict[str]) -> Coroutine[Any, Any, None]:
        return self._http.begin(200, head)

    def write(self, data: bytes) -> Coroutine[Any, Any, None]:
        return self._http.write(data)

    def end(self, data: bytes) -> Coroutine[Any, Any, None]:
        return self._http.end(data)

    def answer(self, status: int, head: Mapping[str, str], body: bytes) -> Coroutine[Any, Any, None]:
        return self._http.answer(status, head, body)

    async def refuse(self, refusal: Refusal, dialect: Dialect) -> None:
        await self.answer(*refusal.said(dialect))

    async def break_off(self, last: bytes) -> None:
        if last:
            await self._http.write(last)
            self._http.cut()
        else:
            # A reset takes with it what the client has not read yet.
            await asyncio.sleep(_READ_S)
            self._http.reset()

    def abort(self) -> None:
        """Gives the client up; whoever waits for it to read gets `ConnectionResetError`."""
        self._http.abort()

    @property
    def open(self) -> bool:
        return self._http.open


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

    async def end(self, data: bytes) -> None:
        await self.write(data)

    async def answer(self, status: int, head: Mapping[str, str], body: bytes) -> None:
        raise AssertionError("replies on a WebSocket are always streamed")

    async def refuse(self, refusal: Refusal, dialect: Dialect) -> None:
        status, head, body = refusal.said(dialect)
        await self.send(error_frame(status, body, head.get("Retry-After"), self._stream_id))

    async def break_off(self, last: bytes) -> None:
        await self.write(last)
        self.failed = True

    @property
    def open(self) -> bool:
        return not self._socket.closed


CLOSE_AFTER_FAILURE = WSCloseCode.INTERNAL_ERROR
