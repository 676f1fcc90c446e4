"""Bodies of any size, both ways: nobody holds in memory what the other side does not take, and nobody blocks the loop."""

import asyncio

import pytest

from polarproxy.proxy.http.body import HIGH_WATER
from tests.proxy.http.socket_engine import OK, Peer, chunked, once, socket_engine, until, upstream_of

MEGABYTE = 1 << 20


async def test_an_answer_that_nobody_reads_stays_with_the_engine() -> None:
    """Bounded by what is kept here and what lies in the kernel's buffers, which is a few megabytes."""
    sent = 0

    async def serve(peer: Peer) -> None:
        nonlocal sent
        await peer.request()
        await peer.say(OK + b"Content-Length: %d\r\n\r\n" % (256 * MEGABYTE))
        for _ in range(256):
            await peer.say(b"x" * MEGABYTE)
            sent += 1

    async with (
        socket_engine(serve) as engine,
        upstream_of(engine, read_timeout=0.1) as upstream,
        await upstream.send("GET", "/x", {}, None) as answer,
    ):
        first = await answer.content.readany()
        for _ in range(50):
            before = sent
            await asyncio.sleep(0.02)
            if sent == before:
                break
        assert sent < 64
        assert answer.content._size <= HIGH_WATER + (1 << 19)
        # Not listening for longer than the engine may be silent is not the engine's silence.
        await asyncio.sleep(0.2)
        rest = len(first)
        while piece := await answer.content.readany():
            rest += len(piece)
        assert rest == 256 * MEGABYTE


async def test_a_whole_body_is_read_however_large() -> None:
    body = bytes(range(256)) * 4096 * 8
    pieces = (body[at : at + 70_000] for at in range(0, len(body), 70_000))
    async with (
        socket_engine(once(OK + b"Transfer-Encoding: chunked\r\n\r\n" + chunked(*pieces))) as engine,
        upstream_of(engine) as upstream,
    ):
        assert await upstream.ask("GET", "/x") == (200, body)


async def test_iterating_gives_every_byte() -> None:
    async with (
        socket_engine(once(OK + b"Transfer-Encoding: chunked\r\n\r\n", chunked(b"ab"), b"")) as engine,
        upstream_of(engine) as upstream,
        await upstream.send("GET", "/x", {}, None) as answer,
    ):
        assert b"".join([piece async for piece in answer.content.iter_any()]) == b"ab"
        assert await answer.content.readany() == b""


@pytest.mark.parametrize("size", [0, 1, 1 << 18, (1 << 18) + 1, 24 * MEGABYTE])
async def test_a_request_body_arrives_whole(size: int) -> None:
    body = (bytes(range(251)) * (size // 251 + 1))[:size]

    async def serve(peer: Peer) -> None:
        request = await peer.request()
        same = request.body == body and f"Content-Length: {size}" in request.headers
        await peer.say(OK + b"Content-Length: 1\r\n\r\n%d" % same)

    async with socket_engine(serve) as engine, upstream_of(engine) as upstream:
        assert await upstream.ask("POST", "/x", body) == (200, b"1")


async def test_a_request_body_waits_for_an_engine_that_is_slow_to_take_it() -> None:
    """Longer in all than it may be silent, but never at once; and others are served meanwhile."""
    body = b"x" * (48 * MEGABYTE)

    async def serve(peer: Peer) -> None:
        head = await peer.reader.readuntil(b"\r\n\r\n")
        if head.startswith(b"GET"):
            await peer.say(OK + b"Content-Length: 0\r\n\r\n")
            return
        for _ in range(6):
            await peer.reader.readexactly(8 * MEGABYTE)
            await asyncio.sleep(0.1)
        await peer.say(OK + b"Content-Length: 2\r\n\r\nok")

    async with socket_engine(serve) as engine, upstream_of(engine, read_timeout=0.4) as upstream:
        asking = asyncio.create_task(upstream.ask("POST", "/x", body))
        await until(lambda: engine.opened)
        assert await upstream.ask("GET", "/y") == (200, b"")
        assert not asking.done()
        assert await asking == (200, b"ok")


async def test_an_answer_before_the_end_of_the_request_is_taken() -> None:
    """A request too large is refused before it is read; its connection cannot serve another one."""

    async def serve(peer: Peer) -> None:
        await peer.reader.readuntil(b"\r\n\r\n")
        await peer.say(b"HTTP/1.1 413 Too Large\r\nContent-Length: 1\r\n\r\n%d" % peer.number)
        await until(lambda: answered)
        await peer.gone()

    answered = False
    async with socket_engine(serve) as engine, upstream_of(engine) as upstream:
        assert await upstream.ask("POST", "/x", b"x" * (64 * MEGABYTE)) == (413, b"0")
        assert await upstream.ask("GET", "/x") == (413, b"1")
        answered = True


@pytest.mark.parametrize("ended", [False, True])
async def test_a_body_left_waiting_holds_up_no_other(ended: bool) -> None:
    """More than is held at once has come. It is read at last, or its end has come too; the connection serves the next."""
    first, second = b"x" * (HIGH_WATER - 5), b"y" * 10
    go_on = asyncio.Event()

    async def serve(peer: Peer) -> None:
        while True:
            await peer.request()
            await peer.say(OK + b"Content-Length: %d\r\n\r\n" % (HIGH_WATER + 5 + 3 * (not ended)) + first)
            await go_on.wait()
            await peer.say(second)
            if not ended:
                await asyncio.sleep(0.01)
                await peer.say(b"end")

    async with socket_engine(serve) as engine, upstream_of(engine) as upstream:
        for _ in range(2):
            go_on.clear()
            async with await upstream.send("GET", "/x", {}, None) as answer:
                await until(lambda: answer.content._size == len(first))
                go_on.set()
                await until(lambda: answer.content._size > len(first))
                assert answer.content.ended is ended
                if not ended:
                    assert await answer.read() == first + second + b"end"
        assert engine.opened == 1
