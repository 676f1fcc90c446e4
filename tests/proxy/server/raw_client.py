"""A server with a handler of the test's own, and a client that is a bare socket."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from polarproxy.proxy.server.connection import Handler
from polarproxy.proxy.server.request import Request
from polarproxy.proxy.server.response import Response
from polarproxy.proxy.server.server import Server

SECONDS = 20.0
LIMIT = 1 << 20


@dataclass(frozen=True)
class Answer:
    """What the client was answered. `headers` are in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes


@dataclass
class Peer:
    """The client's end of a connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def say(self, *pieces: bytes) -> None:
        """Sends the pieces, each in a packet of its own as far as the kernel lets it."""
        for piece in pieces:
            self.writer.write(piece)
            await self.writer.drain()
            await asyncio.sleep(0.002)

    async def answer(self, *, has_body: bool = True) -> Answer:
        """The next answer; raises `IncompleteReadError` when the server hangs up before its end."""
        async with asyncio.timeout(SECONDS):
            line, *lines = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")[:-2]
            headers = {name.lower(): value for name, value in (each.split(": ", 1) for each in lines)}
            version, status_text, _ = line.split(" ", 2)
            assert version == "HTTP/1.1", "something stands before the answer"
            status = int(status_text)
            return Answer(status, headers, await self._body(headers) if has_body and status >= 200 else b"")

    async def _body(self, headers: dict[str, str]) -> bytes:
        if "content-length" in headers:
            return await self.reader.readexactly(int(headers["content-length"]))
        if "transfer-encoding" not in headers:
            return await self.reader.read()
        pieces = []
        while size := int(await self.reader.readuntil(b"\r\n"), 16):
            pieces.append((await self.reader.readexactly(size + 2))[:-2])
        await self.reader.readexactly(2)
        return b"".join(pieces)

    async def rest(self) -> bytes:
        """What comes until the server hangs up."""
        async with asyncio.timeout(SECONDS):
            return await self.reader.read()


@dataclass
class House:
    """A running server."""

    server: Server
    port: int

    @asynccontextmanager
    async def peer(self) -> AsyncIterator[Peer]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            yield Peer(reader, writer)
        finally:
            writer.close()


@asynccontextmanager
async def house(handler: Handler, limit: int = LIMIT) -> AsyncIterator[House]:
    listener = socket.create_server(("127.0.0.1", 0))
    server = Server(handler, limit)
    await server.start(listener)
    try:
        yield House(server, listener.getsockname()[1])
    finally:
        await server.close(SECONDS)


async def echo(http: Request) -> Response:
    """Says what was asked."""
    body = await http.read()
    return Response(200, {"X-Asked": f"{http.method} {http.path}?{http.raw_query}"}, body)


def post(body: bytes, path: str = "/x", headers: bytes = b"") -> bytes:
    """A request with a body of known length."""
    return f"POST {path} HTTP/1.1\r\nHost: h\r\nContent-Length: {len(body)}\r\n".encode() + headers + b"\r\n" + body


def chunked(*pieces: bytes, trailer: bytes = b"") -> bytes:
    """A request with a body in chunks."""
    chunks = b"".join(b"%x;a=b\r\n%b\r\n" % (len(piece), piece) for piece in pieces)
    return b"POST /x HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n" + trailer + b"\r\n"
