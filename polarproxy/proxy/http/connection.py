"""One connection to the engine, on the event loop's own terms: bytes out, answers in, and an eye on the clock."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol, cast

from polarproxy.errors import EngineTimeout, EngineUnreachable
from polarproxy.proxy.http.answer import AnswerReader

if TYPE_CHECKING:
    from polarproxy.errors import PolarproxyError
    from polarproxy.proxy.http.answer import Answer

_PIECE = 1 << 18
"""A request body is handed to the kernel in pieces of so many bytes, so that it does not hold up the other streams."""


class Keeper(Protocol):
    """Who keeps connections."""

    room: memoryview
    """What the engine sends is read into it, by one connection after the other. What is kept of it is copied."""

    def opened(self, connection: Connection) -> None:
        """It is there."""

    def idle(self, connection: Connection) -> None:
        """It can serve another request."""

    def lost(self, connection: Connection) -> None:
        """It is closed."""


class Connection(asyncio.BufferedProtocol):
    """Serves one request at a time."""

    def __init__(self, keeper: Keeper, read_timeout: float) -> None:
        self._keeper = keeper
        self._read_timeout = read_timeout
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport
        self._reader = AnswerReader(self)
        self._head: asyncio.Future[Answer] | None = None
        """What the one who asked waits for. None: nobody does."""
        self._writable: asyncio.Future[None] | None = None
        """Ends when the transport takes more bytes. None: it does."""
        self._sending = False
        """Whether part of a request body has not been handed over."""
        self._paused = False
        self._lost = False
        self._heard_at = 0.0
        self._watch: asyncio.TimerHandle | None = None
        self.idle_since = 0.0
        self.client: object | None = None
        """Stands for the client's request that it serves. None: it serves none, or one of our own."""

    @property
    def usable(self) -> bool:
        """Whether it seems to be open."""
        return not self._transport.is_closing()

    @property
    def heard(self) -> bool:
        """Whether any byte of an answer to the latest request has come."""
        return self._reader.heard

    async def exchange(self, method: str, head: bytes, body: bytes | None) -> Answer:
        """Sends a request and gives the head of the answer. Raises `EngineTimeout`, `EngineUnreachable`."""
        if not self.usable:
            raise EngineUnreachable("the engine closed the connection before the request")
        self._reader.expect(head_only=method == "HEAD")
        head_of_answer: asyncio.Future[Answer] = self._loop.create_future()
        self._head = head_of_answer
        self._heard_at = self._loop.time()
        if self._watch is None:
            self._watch = self._loop.call_later(self._read_timeout, self._listen)
        try:
            if not body:
                self._transport.write(head)
            elif len(body) <= _PIECE:
                self._transport.writelines((head, body))
            else:
                await self._send(head, body, head_of_answer)
            return await head_of_answer
        except asyncio.CancelledError:
            self._give_up(head_of_answer)
            raise

    def _give_up(self, head_of_answer: asyncio.Future[Answer]) -> None:
        """Nobody waits for this answer any more. By now the connection may serve another request."""
        if self._head is head_of_answer:
            self._head = None
            self.close()
        elif not head_of_answer.cancelled() and head_of_answer.exception() is None:
            head_of_answer.result().release()

    async def _send(self, head: bytes, body: bytes, answer: asyncio.Future[Answer]) -> None:
        """Sends a large body as the engine takes it. One that answers before the end does not want the rest."""
        self._sending = True
        self._transport.write(head)
        rest = memoryview(body)
        while rest and not answer.done():
            self._transport.write(rest[:_PIECE])
            rest = rest[_PIECE:]
            self._sending = bool(rest)
            if self._writable is None:
                await asyncio.sleep(0)
            else:
                await asyncio.wait((self._writable, answer), return_when=asyncio.FIRST_COMPLETED)

    def close(self) -> None:
        """Ends the connection at once; what it was about to send is dropped."""
        self._fail(EngineUnreachable("the connection to the engine was closed"))

    def _fail(self, fault: PolarproxyError) -> None:
        head, self._head = self._head, None
        if head is not None and not head.done():
            head.set_exception(fault)
        self._reader.fail(fault)
        self._abort()

    def _abort(self) -> None:
        # asyncio's transports do not bear it once they have told that they are lost.
        if not self._lost:
            self._transport.abort()

    def _listen(self) -> None:
        """The engine may be silent for so long and no longer, unless it is us who do not listen."""
        self._watch = None
        if not self._reader.expecting:
            return
        left = self._read_timeout
        if not self._paused:
            left += self._heard_at - self._loop.time()
        if left <= 0:
            self._fail(EngineTimeout(f"the engine did not answer in time: it was silent for {self._read_timeout:g} s"))
        else:
            self._watch = self._loop.call_later(left, self._listen)

    # What the reader of answers and their bodies ask for.

    def answered(self, answer: Answer) -> None:
        head, self._head = self._head, None
        if head is not None and not head.done():
            head.set_result(answer)

    def finished(self, *, keep_alive: bool) -> None:
        if keep_alive and not self._sending:
            self._keeper.idle(self)
        else:
            self._abort()

    def pause_reading(self) -> None:
        self._paused = True
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._paused = False
        self._heard_at = self._loop.time()
        if self.usable:
            self._transport.resume_reading()

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop does not derive its transports from asyncio's.
        self._transport = cast("asyncio.Transport", transport)
        self._keeper.opened(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._keeper.room

    def buffer_updated(self, nbytes: int) -> None:
        self._heard_at = self._loop.time()
        try:
            self._reader.feed(self._keeper.room[:nbytes])
        except EngineUnreachable as fault:
            self._fail(fault)

    def pause_writing(self) -> None:
        self._writable = self._loop.create_future()

    def resume_writing(self) -> None:
        self._heard_at = self._loop.time()
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)
        self._writable = None

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost = True
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
        self._keeper.lost(self)
        if self._reader.expecting and (exc is not None or not self._reader.hung_up()):
            did = "reset" if isinstance(exc, ConnectionResetError) else "closed"
            where = "in the middle of" if self._reader.heard else "before"
            self._fail(EngineUnreachable(f"the engine {did} the connection {where} its answer"))
        self._reader.close()
