"""An engine that is silent or breaks off: told as what it is, after everything that it had said before."""

import asyncio
import socket
import struct

import pytest

from polarproxy.errors import EngineTimeout, EngineUnreachable
from tests.proxy.http.socket_engine import OK, Peer, always, once, socket_engine, until, upstream_of

CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
BROKEN = {
    "before the head": [],
    "in the head": [b"HTTP/1.1 200 OK\r\nContent-"],
    "in a known length": [OK + b"Content-Length: 10\r\n\r\n", b"half"],
    "in a chunk": [CHUNKED, b"8\r\nhalf"],
    "between chunks": [CHUNKED, b"4\r\nhalf\r\n"],
    "before the last line": [CHUNKED, b"4\r\nhalf\r\n0\r\n"],
    "after an interim answer": [b"HTTP/1.1 100 Continue\r\n\r\n"],
}


@pytest.mark.parametrize("name", BROKEN)
async def test_an_answer_that_breaks_off_is_not_taken_for_whole(name: str) -> None:
    async with socket_engine(once(*BROKEN[name])) as engine, upstream_of(engine) as upstream:
        with pytest.raises(
            EngineUnreachable, match=r"the engine closed the connection (before|in the middle of) its answer"
        ):
            await upstream.ask("GET", "/x")


@pytest.mark.parametrize("name", ["in a known length", "in a chunk", "between chunks"])
async def test_what_came_before_is_read_first(name: str) -> None:
    async with (
        socket_engine(once(*BROKEN[name])) as engine,
        upstream_of(engine) as upstream,
        await upstream.send("GET", "/x", {}, None) as answer,
    ):
        await until(lambda: answer.content.ended)
        assert await answer.content.readany() == b"half"
        with pytest.raises(EngineUnreachable):
            await answer.content.readany()


async def test_also_by_one_who_waits_for_it() -> None:
    """Both come in at once."""
    async with (
        socket_engine(always(CHUNKED)) as engine,
        upstream_of(engine) as upstream,
        await upstream.send("GET", "/x", {}, None) as answer,
    ):
        reading = asyncio.create_task(answer.content.readany())
        await asyncio.sleep(0)
        answer.content.feed(b"half")
        answer.content.end(EngineUnreachable("gone"))
        assert await reading == b"half"
        with pytest.raises(EngineUnreachable, match="gone"):
            await answer.content.readany()


@pytest.mark.parametrize("begun", [[CHUNKED, b"4\r\nhalf\r\n"], [OK + b"\r\n", b"half"]], ids=["chunks", "no length"])
async def test_a_reset_is_called_one(begun: list[bytes]) -> None:
    """Also of an answer that only the end of its connection ends: a reset is no such end."""

    async def serve(peer: Peer) -> None:
        await peer.request()
        await peer.say(*begun)
        linger = struct.pack("ii", 1, 0)
        peer.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        peer.writer.transport.abort()

    async with socket_engine(serve) as engine, upstream_of(engine) as upstream:
        with pytest.raises(EngineUnreachable, match="the engine reset the connection in the middle of its answer"):
            await upstream.ask("GET", "/x")


async def test_a_body_that_is_no_longer_http_is_a_fault() -> None:
    async with (
        socket_engine(once(CHUNKED, b"4\r\ngood\r\nzz\r\nbad\r\n")) as engine,
        upstream_of(engine) as upstream,
        await upstream.send("GET", "/x", {}, None) as answer,
    ):
        await until(lambda: answer.content.ended)
        assert await answer.content.readany() == b"good"
        with pytest.raises(EngineUnreachable, match="cannot be read as HTTP"):
            await answer.content.readany()


SILENT = {"from the start": [], "after the head": [CHUNKED], "in the body": [CHUNKED, b"1\r\na\r\n"]}


@pytest.mark.parametrize("name", SILENT)
async def test_silence_is_a_timeout_and_frees_the_engine(name: str) -> None:
    async def serve(peer: Peer) -> None:
        await peer.request()
        await peer.say(*SILENT[name])
        await peer.gone()

    async with socket_engine(serve) as engine, upstream_of(engine, read_timeout=0.1) as upstream:
        with pytest.raises(EngineTimeout, match=r"silent for 0.1 s"):
            await upstream.ask("GET", "/x")
        await until(lambda: engine.closed == 1)


async def test_an_engine_that_speaks_now_and_then_is_not_silent() -> None:
    """For longer in all than it may be silent at once."""

    async def serve(peer: Peer) -> None:
        await peer.request()
        await peer.say(CHUNKED)
        for _ in range(30):
            await peer.say(b"1\r\na\r\n")
            await asyncio.sleep(0.02)
        await peer.say(b"0\r\n\r\n")

    async with socket_engine(serve) as engine, upstream_of(engine, read_timeout=0.5) as upstream:
        assert await upstream.ask("GET", "/x") == (200, b"a" * 30)


async def test_the_time_between_two_requests_is_not_silence() -> None:
    async def serve(peer: Peer) -> None:
        while True:
            await peer.request()
            await peer.say(OK + b"Content-Length: 2\r\n\r\nok")

    async with socket_engine(serve) as engine, upstream_of(engine, read_timeout=0.2) as upstream:
        for _ in range(3):
            assert await upstream.ask("GET", "/x") == (200, b"ok")
            await asyncio.sleep(0.15)
        await asyncio.sleep(0.25)
        assert await upstream.ask("GET", "/x") == (200, b"ok")
        assert engine.opened == 1
