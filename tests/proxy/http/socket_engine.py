"""An engine that is a bare socket: its answers are given byte by byte, framing and all."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from polarproxy.proxy.upstream import Upstream
from polarproxy.settings import Settings

if TYPE_CHECKING:
    from ssl import SSLContext

SECONDS = 20.0
OK = b"HTTP/1.1 200 OK\r\n"


@dataclass(frozen=True)
class Request:
    """What came in, without its line ends."""

    line: str
    headers: list[str]
    body: bytes


@dataclass
class Peer:
    """One connection, as the engine sees it. `number` counts them from 0."""

    number: int
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def request(self) -> Request:
        """The next request; raises `IncompleteReadError` when the client hangs up."""
        head = await self.reader.readuntil(b"\r\n\r\n")
        line, *headers = head.decode("latin-1").split("\r\n")[:-2]
        lengths = [int(h.split(":")[1]) for h in headers if h.lower().startswith("content-length:")]
        return Request(line, headers, await self.reader.readexactly(sum(lengths)))

    async def say(self, *pieces: bytes) -> None:
        """Sends the pieces, each in a packet of its own as far as the kernel lets it."""
        for piece in pieces:
            self.writer.write(piece)
            await self.writer.drain()
            await asyncio.sleep(0)

    async def gone(self) -> None:
        """Returns when the client has hung up."""
        with suppress(ConnectionError):
            while await self.reader.read(1 << 16):
                pass


Serve = Callable[[Peer], Awaitable[None]]


@dataclass
class SocketEngine:
    """`opened` counts connections, `closed` those whose handler has ended."""

    url: str = ""
    opened: int = 0
    closed: int = 0
    writers: list[asyncio.StreamWriter] = field(default_factory=list)


@asynccontextmanager
async def socket_engine(
    serve: Serve, *, host: str = "127.0.0.1", tls: SSLContext | None = None
) -> AsyncIterator[SocketEngine]:
    """Calls `serve` for each connection, and closes that when it returns."""
    engine = SocketEngine()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = Peer(engine.opened, reader, writer)
        engine.opened += 1
        engine.writers.append(writer)
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            await serve(peer)
        engine.closed += 1
        writer.close()

    server = await asyncio.start_server(connected, host, 0, ssl=tls)
    port = server.sockets[0].getsockname()[1]
    engine.url = f"{'https' if tls else 'http'}://{f'[{host}]' if ':' in host else host}:{port}"
    try:
        yield engine
    finally:
        server.close()
        for writer in engine.writers:
            if not writer.is_closing():
                writer.transport.abort()
        await asyncio.sleep(0)


def always(*pieces: bytes) -> Serve:
    """Every request gets these bytes."""

    async def serve(peer: Peer) -> None:
        while True:
            await peer.request()
            await peer.say(*pieces)

    return serve


def once(*pieces: bytes) -> Serve:
    """The first request of a connection gets these bytes, and then the connection is closed."""

    async def serve(peer: Peer) -> None:
        await peer.request()
        await peer.say(*pieces)

    return serve


@asynccontextmanager
async def upstream_of(engine: SocketEngine | str, **settings: float | str) -> AsyncIterator[Upstream]:
    """A client of it, closed in the end; the whole block has 20 seconds."""
    url = engine if isinstance(engine, str) else engine.url
    known = Settings(upstream=url, **settings)  # type: ignore[arg-type]
    upstream = Upstream(known.upstreams[0], known)
    try:
        async with asyncio.timeout(SECONDS):
            yield upstream
    finally:
        await upstream.close()


async def until(condition: Callable[[], object]) -> None:
    """Waits until it holds; raises `TimeoutError`."""
    async with asyncio.timeout(SECONDS):
        while not condition():  # noqa: ASYNC110  (the other end of a socket signals nothing)
            await asyncio.sleep(0.002)


def chunked(*pieces: bytes) -> bytes:
    """A chunked body of these chunks, with its end."""
    return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"
