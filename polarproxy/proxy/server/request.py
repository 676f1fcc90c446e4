"""One request, as it came in, and the one answer to it."""

from __future__ import annotations

import socket
import struct
from functools import cached_property
from typing import TYPE_CHECKING, Protocol
from urllib.parse import parse_qsl, urlsplit

from multidict import CIMultiDict, MultiDict

from polarproxy.errors import BadRequest, TooLarge
from polarproxy.proxy.http.body import Body, Flow
from polarproxy.proxy.server.response import Framing, head_of

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Container, Mapping

    from polarproxy.errors import PolarproxyError

_NO_LINGER = struct.pack("ii", 1, 0)
_OF_THE_LINE = frozenset(("connection", "keep-alive", "content-length", "transfer-encoding", "expect", "upgrade"))
"""Headers that speak of the connection that the request came on, or of how it came."""
_LARGE = 1 << 16
"""Bytes of a piece that are worth handing on without a copy."""


class Line(Flow, Protocol):
    """The connection of a request."""

    closing: bool
    """Whether it takes no further request."""

    @property
    def transport(self) -> asyncio.Transport:
        """What bytes go out on."""

    async def drained(self) -> None:
        """Returns when the client has taken most of what was sent; raises `ConnectionResetError`."""

    def hand_over(self, protocol: asyncio.Protocol, request: bytes) -> None:
        """From now on another protocol speaks on the connection, beginning with this request."""


class Request:
    """What a client asks. A handler answers it once: by `answer`, or by `begin`, `write` and `end`.

    What is written to a client that is gone raises `ConnectionResetError`.
    """

    def __init__(
        self, line: Line, method: str, target: str, version: str, headers: CIMultiDict[str], limit: int
    ) -> None:
        """`target`: percent-encoded, as it was sent. `limit`: bytes that the body may have. Raises `BadRequest`."""
        self.method = method
        self.version = version
        """`1.1` or `1.0`."""
        self.headers = headers
        self.path, self.raw_query = _split(target)
        """Both percent-encoded, as they were sent."""
        self.keep_alive = True
        """Whether the client expects to send another request."""
        self.switches = False
        """Whether the connection is to become a WebSocket."""
        self.begun = False
        self.ended = False
        """Of the answer."""
        self._line = line
        self._limit = limit
        self._body = Body(line)
        self._size = 0
        self._bytes: bytes | None = None
        """The body, once it has been read."""
        self._framing: Framing
        if int(headers.get("Content-Length", 0)) > limit:
            self.spoil(TooLarge(f"the request body is too large: the proxy takes {limit} bytes"))

    @cached_property
    def query(self) -> MultiDict[str]:
        """The query string's members, decoded."""
        return MultiDict(parse_qsl(self.raw_query, keep_blank_values=True))

    @property
    def host(self) -> str:
        """The name and port by which the client says that it reached us; empty when it does not."""
        return self.headers.get("Host", "")

    @property
    def has_body(self) -> bool:
        """Whether a body comes with it, be it an empty one in chunks."""
        return "Transfer-Encoding" in self.headers or self.headers.get("Content-Length", "0") != "0"

    @property
    def waits(self) -> bool:
        """Whether the client waits for a word before it sends the body."""
        return (
            self.headers.get("Expect", "").lower() == "100-continue" and self.version == "1.1" and not self._body.ended
        )

    async def read(self) -> bytes:
        """The whole body, as often as it is asked for; raises `TooLarge`, and `BadRequest` when it is not whole."""
        if self._bytes is None:
            body = await self._body.read()
            if self._body.fault is not None:
                raise self._body.fault
            self._bytes = body
        return self._bytes

    # What the connection says of the body.

    def feed(self, piece: bytes) -> None:
        """More of it."""
        self._size += len(piece)
        if self._body.ended:
            return
        if self._size > self._limit:
            self.spoil(TooLarge(f"the request body is too large: the proxy takes {self._limit} bytes"))
        else:
            self._body.feed(piece)

    def whole(self) -> None:
        """That was the last of it."""
        if not self._body.ended:
            self._body.end()

    def spoil(self, fault: PolarproxyError) -> None:
        """It will not be read."""
        self._body.end(fault)

    # The answer.

    @property
    def open(self) -> bool:
        """Whether the client was still there when last heard of."""
        return not self._line.transport.is_closing()

    async def answer(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        """An answer in one piece."""
        first = self._start(status, headers, len(body))
        self.ended = True
        self._send(first, body if self._framing.has_body else b"")
        await self._line.drained()

    async def begin(self, status: int, headers: Mapping[str, str], length: int | None = None) -> None:
        """The head of an answer whose body follows. `length`: of the body, where it is known."""
        self._send(self._start(status, headers, length))
        await self._line.drained()

    async def write(self, data: bytes) -> None:
        """More of the body."""
        if data and self._framing.has_body:
            self._send(*self._framed(data))
            await self._line.drained()

    async def end(self, data: bytes = b"") -> None:
        """The last of the body."""
        pieces = self._framed(data) if data and self._framing.has_body else ()
        self.ended = True
        self._send(*pieces, b"0\r\n\r\n" if self._framing.chunked else b"")
        await self._line.drained()

    def _start(self, status: int, headers: Mapping[str, str], length: int | None) -> bytes:
        stays = self.keep_alive and not self._line.closing
        self._framing = Framing.of(self.method, self.version, status, length, keep_alive=stays)
        self.keep_alive = self._framing.keep_alive
        first = head_of(status, headers, self._framing, self.version)
        self.begun = True
        return first

    def _framed(self, data: bytes) -> tuple[bytes, ...]:
        if not self._framing.chunked:
            return (data,)
        if len(data) < _LARGE:
            return (b"%x\r\n%b\r\n" % (len(data), data),)
        return b"%x\r\n" % len(data), data, b"\r\n"

    def _send(self, *pieces: bytes) -> None:
        transport = self._line.transport
        if transport.is_closing():
            raise ConnectionResetError("the client is gone")
        if len(pieces) == 1:
            transport.write(pieces[0])
        elif sum(map(len, pieces)) < _LARGE:
            transport.write(b"".join(pieces))
        else:
            transport.writelines(piece for piece in pieces if piece)

    # Other ways out.

    def cut(self) -> None:
        """Ends the connection without the end of the answer, once the client has what was sent."""
        self._line.transport.close()

    def abort(self) -> None:
        """Ends the connection at once; what was not sent is dropped."""
        if self.open:
            self._line.transport.abort()

    def reset(self) -> None:
        """Ends the connection by a reset, which takes with it what the client has not read yet."""
        transport = self._line.transport
        if not transport.is_closing():
            transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
            transport.abort()

    def hand_over(self, protocol: asyncio.Protocol, body: bytes | None = None) -> None:
        """Lets another protocol answer, and have the connection until it ends: after this request, if it is no request to
        switch protocols. `body`: of the request. None: it is one to switch protocols, and has none."""
        self.begun = self.ended = True
        if body is None:
            self._line.hand_over(protocol, self.head())
        else:
            more = f"Connection: close\r\nContent-Length: {len(body)}\r\n\r\n".encode()
            self._line.hand_over(protocol, self.head(without=_OF_THE_LINE)[:-2] + more + body)

    def head(self, without: Container[str] = ()) -> bytes:
        """The request line and the headers, as they came; without those of these names, in lower case."""
        query = f"?{self.raw_query}" if self.raw_query else ""
        headers = (f"{name}: {value}\r\n" for name, value in self.headers.items() if name.lower() not in without)
        lines = (f"{self.method} {self.path}{query} HTTP/{self.version}\r\n", *headers, "\r\n")
        return "".join(lines).encode("utf-8", "surrogateescape")


def _split(target: str) -> tuple[str, str]:
    """Path and query; of a request to a proxy (`http://…`) those of its URL."""
    target = target.partition("#")[0]
    if not target.startswith("/"):
        try:
            url = urlsplit(target)
        except ValueError as error:
            raise BadRequest(f"{target!r} is no URL: {error}") from error
        return url.path or "/", url.query
    path, _, query = target.partition("?")
    return path, query
