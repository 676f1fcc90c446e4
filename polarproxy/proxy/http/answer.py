"""Answers cut out of the bytes of a connection, by httptools (llhttp, the parser of Node.js). Source: RFC 9112."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser
from multidict import CIMultiDict

from polarproxy.errors import EngineUnreachable
from polarproxy.proxy.http.body import Body, Flow

if TYPE_CHECKING:
    from types import TracebackType

    from polarproxy.errors import PolarproxyError

_MAX_HEAD = 1 << 18
"""Bytes that may come before the end of an answer's head."""


class Wire(Flow, Protocol):
    """The connection of an answer."""

    def answered(self, answer: Answer) -> None:
        """The head of the answer is here."""

    def finished(self, *, keep_alive: bool) -> None:
        """The last byte of the answer is here."""

    def close(self) -> None:
        """Ends the connection."""


@dataclass(slots=True)
class Answer:
    """What the engine answers: the head at once, the body as it comes in."""

    status: int
    headers: CIMultiDict[str]
    """In the order in which they came, repeated ones as often as they did."""
    content: Body
    _wire: Wire

    async def read(self) -> bytes:
        """The whole body; raises `EngineTimeout`, `EngineUnreachable` when it is not whole."""
        body = await self.content.read()
        if self.content.fault is not None:
            raise self.content.fault
        return body

    async def drain(self, seconds: float) -> None:
        """Waits for the end of a body that has nothing more to say, so that its connection can serve the next request."""
        if self.content.ended:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.content.read()

    def release(self) -> None:
        """Done with it. A connection whose answer has not ended is closed, which frees the engine."""
        if not self.content.ended:
            self._wire.close()

    close = release

    async def __aenter__(self) -> Answer:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


class AnswerReader:
    """The answers of one connection, one for each `expect`. Tells the connection of their heads and their ends."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._parser: HttpResponseParser | None = None
        self._headers: list[tuple[str, str]] = []
        self._head_only = False
        self._head_bytes = 0
        self._body: Body | None = None
        self._until_close = False
        """Whether the body has no other end than the connection's."""
        self._surplus = False
        self.expecting = False
        """Whether an answer is under way."""
        self.heard = False
        """Whether any byte of it has come."""

    def expect(self, *, head_only: bool) -> None:
        """A request goes out. `head_only`: its answer has no body, whatever the headers say."""
        self.expecting, self.heard, self._head_only = True, False, head_only
        self._body, self._head_bytes, self._headers = None, 0, []
        if self._parser is None:
            self._parser = HttpResponseParser(self)
            self._parser.set_dangerous_leniencies(
                lenient_optional_cr_before_lf=True, lenient_spaces_after_chunk_size=True, lenient_data_after_close=True
            )

    def feed(self, data: bytes | memoryview) -> None:
        """Raises `EngineUnreachable` when this is not what an HTTP server answers."""
        if self._parser is None or not self.expecting:
            raise EngineUnreachable("the engine sent bytes that nobody had asked for")
        self.heard = True
        if self._body is None:
            self._head_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except HttpParserUpgrade as error:
            raise EngineUnreachable("the engine switched to another protocol") from error
        except HttpParserError as error:
            raise EngineUnreachable(f"the engine's answer cannot be read as HTTP: {error}") from error
        if self._surplus:
            raise EngineUnreachable("the engine answered more often than it was asked")
        if self._body is None and self._head_bytes > _MAX_HEAD:
            raise EngineUnreachable(f"the head of the engine's answer is longer than {_MAX_HEAD} bytes")

    def hung_up(self) -> bool:
        """The connection ended in order; whether the answer ended with it, as one without a length does."""
        if self._body is not None and self._until_close:
            self._finish(keep_alive=False)
        return not self.expecting

    def fail(self, fault: PolarproxyError) -> None:
        """Nothing more comes in, and the answer is not whole."""
        if self.expecting and self._body is not None:
            self._body.end(fault)
        self.expecting, self._parser = False, None

    def close(self) -> None:
        """The connection is gone. In a loop of references all of it would stay until garbage is collected."""
        self._parser = self._body = None
        del self._wire

    # What httptools calls.

    def on_message_begin(self) -> None:
        self._surplus = not self.expecting

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name.decode("utf-8", "surrogateescape"), value.decode("utf-8", "surrogateescape")))

    def on_headers_complete(self) -> None:
        assert self._parser is not None
        headers, self._headers = CIMultiDict(self._headers), []
        status = self._parser.get_status_code()
        if status < 200 or not self.expecting:
            return
        coding = headers.get("Transfer-Encoding")
        self._until_close = "chunked" not in coding.lower() if coding else "Content-Length" not in headers
        self._body = Body(self._wire)
        self._wire.answered(Answer(status, headers, self._body, self._wire))
        if self._head_only:
            # The parser does not know, and would go on to wait for a body.
            self._finish(keep_alive=False)

    def on_body(self, piece: bytes) -> None:
        if self._body is not None and self.expecting:
            self._body.feed(piece)

    def on_message_complete(self) -> None:
        # Also called at the end of an interim answer (1xx), which comes before the answer itself.
        if self._body is not None and self._parser is not None and self.expecting:
            self._finish(keep_alive=self._parser.should_keep_alive())

    def _finish(self, *, keep_alive: bool) -> None:
        self.expecting = False
        assert self._body is not None
        self._body.end()
        self._wire.finished(keep_alive=keep_alive)
