"""One client's connection: requests come in one behind the other and are answered in that order."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol, TypeAlias, cast

from polarproxy.errors import BadRequest
from polarproxy.proxy.server.reader import RequestReader
from polarproxy.proxy.server.response import Framing, head_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from polarproxy.proxy.server.request import Request
    from polarproxy.proxy.server.response import Response

Handler: TypeAlias = "Callable[[Request], Awaitable[Response | None]]"
"""Answers a request: returns the answer, or None when it has given it itself. Cancelled when the client leaves."""

_MOST_WAITING = 16
"""Requests that may wait for the one before them; with more, the client is not read any more."""
_MAX_TAIL = 1 << 16
"""Bytes that may come after a request to switch protocols before it is answered."""
_LINGER_S = 10.0
"""How long a client may go on sending what nobody reads, so that it gets to see the answer."""
_IDLE_S = 3630.0
"""How long an idle connection is kept: longer than a proxy in front of us would."""
_TEXT = {"Content-Type": "text/plain; charset=utf-8"}
_log = logging.getLogger(__name__)


class House(Protocol):
    """The server of a connection."""

    closing: bool
    handler: Handler
    max_body: int

    def opened(self, connection: Connection) -> None:
        """It is there."""

    def lost(self, connection: Connection) -> None:
        """It is gone, or somebody else's."""


class Connection(asyncio.Protocol):
    """Reads requests, has them answered, and tells the handler when the client leaves."""

    def __init__(self, house: House) -> None:
        self._house = house
        self._loop = asyncio.get_running_loop()
        self.transport: asyncio.Transport
        self._reader = RequestReader(self, house.max_body)
        self._waiting: deque[Request] = deque()
        self._current: Request | None = None
        """What is being answered."""
        self.task: asyncio.Task[None] | None = None
        """Answers it."""
        self._tail: bytes | None = None
        """What came after a request to switch protocols. None: there was no such request."""
        self._deaf = False
        """Whether what comes in is not listened to any more, because it cannot be understood."""
        self._pauses = 0
        """Reasons why the client is not read."""
        self._crowded = False
        """Whether one of them is that too much waits."""
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._lingering: asyncio.TimerHandle | None = None
        """Runs while the body of a request that is answered comes in."""
        self._gone = False
        """Whether the connection is closed, or somebody else's."""
        self.closing = False

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop does not derive its transports from asyncio's.
        self.transport = cast("asyncio.Transport", transport)
        with suppress(OSError):
            transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._house.opened(self)
        self._idle_since = self._loop.time()
        self._timer: asyncio.TimerHandle = self._loop.call_later(_IDLE_S, self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        self._leave()
        self._flowing.set()
        self._waiting.clear()
        # What was cancelled holds all that it ran through.
        task, self.task, self._current = self.task, None, None
        if task is not None:
            task.cancel()

    def pause_writing(self) -> None:
        self._flowing.clear()

    def resume_writing(self) -> None:
        self._flowing.set()

    def data_received(self, data: bytes) -> None:
        if self._deaf:
            return
        if self._tail is not None:
            self._tail += data
            self._crowd(crowded=len(self._tail) > _MAX_TAIL)
            return
        try:
            self._tail = self._reader.feed(data)
        except BadRequest as error:
            self._misunderstood(error)
        if self._current is None and self._waiting:
            self._next()
        self._crowd(crowded=len(self._waiting) > _MOST_WAITING)

    # What the reader of requests calls.

    def arrived(self, request: Request) -> None:
        self._waiting.append(request)

    def completed(self, request: Request) -> None:
        if self._lingering is not None:
            self._lingering.cancel()
            self._lingering = None
            self._go_on(request)

    def _misunderstood(self, error: BadRequest) -> None:
        """What was understood before it is still answered."""
        self._deaf = True
        if self._lingering is not None:
            self.transport.close()
        elif self._current is None and not self._waiting:
            body = f"{error}\n".encode("utf-8", "replace")
            framing = Framing(has_body=True, length=len(body), chunked=False, keep_alive=False)
            self.transport.write(head_of(400, _TEXT, framing, "1.1") + body)
            self.transport.close()
        self._reader.spoil(error)

    # One request after the other.

    def _next(self) -> None:
        if self._waiting:
            request = self._current = self._waiting.popleft()
            if request.waits:
                self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            self.task = self._loop.create_task(self._serve(request))
        elif self._tail is not None:
            # The other protocol was declined.
            tail, self._tail = self._tail, None
            self._crowd(crowded=False)
            self.data_received(tail)
        elif (self.closing or self._deaf) and self._reader.reading is None:
            self.transport.close()
        else:
            self._idle_since = self._loop.time()

    async def _serve(self, request: Request) -> None:
        try:
            response = await self._house.handler(request)
            if response is not None:
                await request.answer(response.status, response.headers, response.body)
        except ConnectionResetError:
            self.transport.abort()
        except Exception:  # noqa: BLE001  (a fault of ours costs this request, and nobody else's)
            _log.exception("%s %s could not be answered", request.method, request.path)
            await self._apologise(request)
        self._current = self.task = None
        if self._gone or self.transport.is_closing():
            return
        if not request.ended:
            # The client must not take what it has for the whole answer.
            self.transport.abort()
        elif self._reader.reading is request:
            # Closed now, the client would lose the answer over what it still sends.
            request.spoil(BadRequest("the body was not wanted"))
            self._lingering = self._loop.call_later(_LINGER_S, self.transport.close)
        else:
            self._go_on(request)

    async def _apologise(self, request: Request) -> None:
        if not request.begun:
            with suppress(ConnectionResetError):
                await request.answer(500, _TEXT, b"the proxy failed to answer; its log says why\n")

    def _go_on(self, request: Request) -> None:
        """After this one, which is answered and wholly in."""
        if not request.keep_alive:
            self.transport.close()
        else:
            self._crowd(crowded=len(self._waiting) > _MOST_WAITING)
            self._next()

    def end(self) -> None:
        """Takes no further request; what is under way is answered."""
        self.closing = True
        if self._current is None and self._reader.reading is None:
            self.transport.close()

    def _look(self) -> None:
        left = _IDLE_S
        if self._current is None:
            left += self._idle_since - self._loop.time()
        if left <= 0:
            self.transport.close()
        else:
            self._timer = self._loop.call_later(left, self._look)

    def _leave(self) -> None:
        self._gone = True
        self._timer.cancel()
        if self._lingering is not None:
            self._lingering.cancel()
        self._reader.close()
        self._house.lost(self)

    # What requests and their bodies ask for.

    async def drained(self) -> None:
        if not self._flowing.is_set():
            await self._flowing.wait()
            if self._gone:
                raise ConnectionResetError("the client is gone")

    def hand_over(self, protocol: asyncio.Protocol, request: bytes) -> None:
        tail = self._tail or b""
        self._leave()
        while self._pauses:
            self.resume_reading()
        self.transport.set_protocol(protocol)
        protocol.connection_made(self.transport)
        protocol.data_received(request + tail)

    def pause_reading(self) -> None:
        self._pauses += 1
        if self._pauses == 1 and not self.transport.is_closing():
            self.transport.pause_reading()

    def resume_reading(self) -> None:
        self._pauses -= 1
        if not self._pauses and not self.transport.is_closing():
            self.transport.resume_reading()

    def _crowd(self, *, crowded: bool) -> None:
        if crowded != self._crowded:
            self._crowded = crowded
            (self.pause_reading if crowded else self.resume_reading)()
