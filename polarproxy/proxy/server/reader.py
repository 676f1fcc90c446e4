"""Requests cut out of the bytes of a connection, by httptools (llhttp, the parser of Node.js). Source: RFC 9112."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser
from multidict import CIMultiDict

from polarproxy.errors import BadRequest
from polarproxy.proxy.server.request import Line, Request

if TYPE_CHECKING:
    from polarproxy.errors import PolarproxyError

MAX_HEAD = 1 << 16
"""Bytes that a request's line and headers may have, and any other part of which the parser keeps what came of it."""
_TOO_LONG = f"the head of the request is longer than {MAX_HEAD} bytes"


class Desk(Line, Protocol):
    """The connection, as far as requests that come in concern it."""

    def arrived(self, request: Request) -> None:
        """The head of a request is here."""

    def completed(self, request: Request) -> None:
        """So is its body."""


class RequestReader:
    """The requests of one connection, one behind the other."""

    def __init__(self, desk: Desk, max_body: int) -> None:
        self._desk = desk
        self._max_body = max_body
        self._parser = HttpRequestParser(self)
        self._url = b""
        self._headers: CIMultiDict[str] | None = None
        """Of the head that is coming in. None: none is."""
        self._head_bytes = 0
        self._said = False
        """Whether the parser said anything since the last bytes."""
        self._silent = 0
        """Bytes since it did."""
        self._again: bytes | None = None
        """The head of a request that the parser took for one to switch protocols, and that is none. None: there is none."""
        self.reading: Request | None = None
        """Whose body is coming in. None: nobody's."""

    def feed(self, data: bytes) -> bytes | None:
        """What comes after a request to switch protocols; None: there was no such request. Raises `BadRequest`."""
        self._said = False
        try:
            self._parser.feed_data(data)
        except HttpParserUpgrade as error:
            self._parser = HttpRequestParser(self)
            tail = data[error.args[0] :]
            if self._again is None:
                return tail
            again, self._again = self._again, None
            return self.feed(again + tail)
        except HttpParserError as error:
            if isinstance(error.__context__, BadRequest):
                raise error.__context__ from error
            raise BadRequest(f"the request cannot be read as HTTP: {error}") from error
        self._silent = 0 if self._said else self._silent + len(data)
        if self._silent > MAX_HEAD:
            raise BadRequest(_TOO_LONG)
        return None

    def spoil(self, fault: PolarproxyError) -> None:
        """Nothing more is read."""
        if self.reading is not None:
            self.reading.spoil(fault)
            self.reading = None

    def close(self) -> None:
        """Nothing more comes in. In a loop of references all of it would stay until garbage is collected."""
        self.reading = None
        del self._parser, self._desk

    # What httptools calls.

    def on_message_begin(self) -> None:
        self._url, self._headers, self._head_bytes = b"", CIMultiDict(), 0

    def on_url(self, url: bytes) -> None:
        self._url += url
        self._count(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count(len(name) + len(value))
        # What comes after the body (a trailer) says nothing that we need.
        if self._headers is not None:
            self._headers.add(name.decode("utf-8", "surrogateescape"), value.decode("utf-8", "surrogateescape"))

    def on_headers_complete(self) -> None:
        assert self._headers is not None
        parser, headers, self._headers = self._parser, self._headers, None
        target, method = self._url.decode("utf-8", "surrogateescape"), parser.get_method().decode()
        request = Request(self._desk, method, target, parser.get_http_version(), headers, self._max_body)
        request.keep_alive = parser.should_keep_alive()
        if parser.should_upgrade():
            request.switches = (
                method == "GET" and headers.get("Upgrade", "").lower() == "websocket" and not request.has_body
            )
            if method == "CONNECT":
                raise BadRequest("this is no proxy for CONNECT")
            if not request.switches:
                # The parser takes the body for the other protocol.
                self._again = request.head(without=("upgrade", "connection"))
                return
        self.reading = request
        self._desk.arrived(request)

    def on_body(self, piece: bytes) -> None:
        self._said = True
        if self.reading is not None:
            self.reading.feed(piece)

    def on_message_complete(self) -> None:
        self._said = True
        request, self.reading = self.reading, None
        if request is not None:
            request.whole()
            self._desk.completed(request)

    def _count(self, more: int) -> None:
        self._said = True
        self._head_bytes += more
        if self._head_bytes > MAX_HEAD:
            raise BadRequest(_TOO_LONG)
