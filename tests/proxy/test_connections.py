"""A connection that the engine closed while it was idle is no reason to fail a call."""

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from polarproxy.model import CallStatus
from tests.proxy.http.socket_engine import OK, Peer, socket_engine
from tests.proxy.raw_engine import stream
from tests.proxy.rig import BODY, Starter, until

MODELS = b'{"data":[{"id":"fake","owned_by":"other"}]}'
REPLY = b'{"id":"x","model":"fake","choices":[{"index":0,"message":{"content":"hi"},"finish_reason":"stop"}]}'


@asynccontextmanager
async def closing_engine(*, reset: bool) -> AsyncIterator[tuple[str, list[bytes]]]:
    """Answers the first chat request of a connection, and hangs up when the second one comes: as if it had just then
    grown tired of waiting. With `reset` it does so by a RST. The list holds every chat body that came in."""
    bodies = list[bytes]()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answered = False
        while head := await reader.readuntil(b"\r\n\r\n"):
            lower = head.lower()
            length = int(lower.split(b"content-length: ")[1].split(b"\r\n")[0]) if b"content-length" in lower else 0
            body = await reader.readexactly(length)
            chat = head.startswith(b"POST /v1/chat")
            if chat:
                bodies.append(body)
                if answered:
                    break
                answered = True
            answer = REPLY if chat else MODELS
            length_line = f"Content-Length: {len(answer)}\r\n\r\n".encode()
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n" + length_line + answer)
            await writer.drain()
        if reset:
            peer = writer.get_extra_info("socket")
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()
        else:
            writer.close()

    async def quiet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await serve(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(quiet, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()[:2]
    try:
        yield f"http://{host}:{port}", bodies
    finally:
        server.close()


@pytest.mark.parametrize("reset", [False, True], ids=["closed", "reset"])
async def test_a_stale_connection_is_replaced(start: Starter, reset: bool) -> None:
    async with closing_engine(reset=reset) as (url, bodies):
        rig = await start(upstream=url)
        for number in range(4):
            answer = await rig.ask(BODY, prefix=f"/s/n{number}")
            assert (answer.status, answer.body) == (200, REPLY)
            assert (await rig.call(f"n{number}")).call.status is CallStatus.COMPLETED
        assert len(bodies) > 4


async def test_a_connection_serves_one_request_after_the_other(start: Starter) -> None:
    """Also after streams: the engine is not asked to open a connection for each."""
    rig = await start()
    before = len(rig.engine._runner.server.connections) if rig.engine._runner.server else 0
    for number in range(10):
        await rig.ask({**BODY, "stream": bool(number % 2)})
    assert rig.engine._runner.server is not None
    assert len(rig.engine._runner.server.connections) <= before + 1


async def test_what_fails_on_a_fresh_connection_is_not_sent_again(start: Starter) -> None:
    """The engine may have read it: a request that it died of would kill the next one too."""
    seen = list[bytes]()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        if head.startswith(b"POST /v1/chat"):
            seen.append(head)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        rig = await start(upstream=f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", engine="plain")
        assert (await rig.ask()).status == 502
        assert len(seen) == 1
        assert (await rig.call()).call.status is CallStatus.ENGINE_ERROR


async def test_a_stream_whose_end_comes_late_leaves_its_connection_to_the_next(start: Starter) -> None:
    said = stream(b'{"choices":[{"index":0,"delta":{"content":"x"},"finish_reason":"stop"}]}')
    head = OK + b"Content-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n"
    asked = list[int]()

    async def serve(peer: Peer) -> None:
        while True:
            request = await peer.request()
            if "/chat/" not in request.line:
                await peer.say(OK + b"Content-Length: %d\r\n\r\n%b" % (len(MODELS), MODELS))
                continue
            asked.append(peer.number)
            await peer.say(head % (len(said), said))
            await asyncio.sleep(0.05)
            await peer.say(b"0\r\n\r\n")

    async with socket_engine(serve) as engine:
        rig = await start(upstream=engine.url)
        for _ in range(3):
            assert (await rig.ask({**BODY, "stream": True})).body == said
            await until(lambda: rig.parts.fleet.members[0].in_flight == 0)
    assert len(asked) == 3
    assert len(set(asked)) == 1
