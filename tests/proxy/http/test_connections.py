"""Connections to the engine: kept, replaced, closed, and never used by two requests at once."""

import asyncio
import socket

import pytest

from polarproxy.errors import EngineTimeout, EngineUnreachable
from polarproxy.proxy.http import pool
from polarproxy.proxy.http.answer import AnswerReader
from polarproxy.proxy.http.body import Body
from polarproxy.proxy.http.connection import Connection
from tests.garbage import none_left
from tests.proxy.http.socket_engine import OK, Peer, always, chunked, once, socket_engine, until, upstream_of

PLAIN = OK + b"Content-Length: 2\r\n\r\nok"


async def test_a_connection_is_kept_and_used_again() -> None:
    async with socket_engine(always(PLAIN)) as engine, upstream_of(engine) as upstream:
        for _ in range(5):
            assert await upstream.ask("GET", "/x") == (200, b"ok")
        assert engine.opened == 1


async def test_many_requests_at_once_each_get_their_own_answer() -> None:
    """Also when a connection is taken again before the one who had it last has looked at its answer."""

    async def echo(peer: Peer) -> None:
        while True:
            body = (await peer.request()).body
            await peer.say(OK + b"Content-Length: %d\r\n\r\n" % len(body) + body)

    async with socket_engine(echo) as engine, upstream_of(engine) as upstream:

        async def ask(rank: int) -> None:
            for number in range(25):
                body = f"{rank}/{number}".encode() * 50
                assert await upstream.ask("POST", "/x", body) == (200, body)

        await asyncio.gather(*map(ask, range(12)))
        assert engine.opened <= 12


@pytest.mark.parametrize("framing", [b"Connection: close\r\nContent-Length: 2\r\n\r\nok", b"\r\nok"])
async def test_one_that_the_engine_closes_is_not_kept(framing: bytes) -> None:
    async with socket_engine(once(OK + framing)) as engine, upstream_of(engine) as upstream:
        for _ in range(3):
            assert await upstream.ask("GET", "/x") == (200, b"ok")
        assert engine.opened == 3


async def test_an_idle_one_is_closed_before_the_engine_would(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "KEEP_S", 0.02)
    async with socket_engine(always(PLAIN)) as engine, upstream_of(engine) as upstream:
        await asyncio.gather(*(upstream.ask("GET", "/x") for _ in range(3)))
        await until(lambda: engine.closed == engine.opened)
        assert await upstream.ask("GET", "/x") == (200, b"ok")


async def test_one_that_was_idle_for_too_long_is_not_used_though_nobody_had_time_to_close_it() -> None:
    async with socket_engine(always(PLAIN)) as engine, upstream_of(engine) as upstream:
        await upstream.ask("GET", "/x")
        upstream._pool._idle[0].idle_since -= pool.KEEP_S
        await asyncio.sleep(0.01)
        assert await upstream.ask("GET", "/x") == (200, b"ok")
        assert engine.opened == 2


async def test_one_that_died_meanwhile_is_replaced_once() -> None:
    """The engine hangs up on the second request of the first connection."""

    async def serve(peer: Peer) -> None:
        await peer.request()
        await peer.say(PLAIN)
        if peer.number:
            await peer.gone()
        else:
            await peer.request()

    async with socket_engine(serve) as engine, upstream_of(engine) as upstream:
        assert await upstream.ask("GET", "/x") == (200, b"ok")
        assert await upstream.ask("GET", "/x") == (200, b"ok")
        assert engine.opened == 2


async def test_a_request_is_sent_twice_at_most_and_to_one_kept_connection() -> None:
    seen = 0

    async def serve(peer: Peer) -> None:
        nonlocal seen
        await peer.request()
        if peer.number < 3:
            await peer.say(PLAIN)
            await peer.request()
        seen += 1

    async with socket_engine(serve) as engine, upstream_of(engine) as upstream:
        await asyncio.gather(*(upstream.ask("GET", "/x") for _ in range(3)))
        assert engine.opened == 3
        with pytest.raises(EngineUnreachable, match="closed the connection before its answer"):
            await upstream.ask("GET", "/x")
        assert seen == 2


async def test_what_an_engine_may_be_sampling_is_not_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """It read the request on a kept connection, worked on it, and died."""
    monkeypatch.setattr(pool, "_STALE_S", 0.02)

    async def serve(peer: Peer) -> None:
        await peer.request()
        await peer.say(PLAIN)
        await peer.request()
        await asyncio.sleep(0.1)

    async with socket_engine(serve) as engine, upstream_of(engine) as upstream:
        await upstream.ask("GET", "/x")
        with pytest.raises(EngineUnreachable, match="closed the connection before its answer") as failed:
            await upstream.ask("GET", "/x")
        assert failed.value.sent
        assert engine.opened == 1


async def test_once_an_answer_has_begun_nothing_is_sent_again() -> None:
    async def serve(peer: Peer) -> None:
        await peer.request()
        await peer.say(PLAIN)
        await peer.request()
        await peer.say(b"HTTP/1.1 20")

    async with socket_engine(serve) as engine, upstream_of(engine) as upstream:
        await upstream.ask("GET", "/x")
        with pytest.raises(EngineUnreachable, match="in the middle of its answer"):
            await upstream.ask("GET", "/x")
        assert engine.opened == 1


async def test_bytes_that_come_unasked_end_a_kept_connection() -> None:
    async def serve(peer: Peer) -> None:
        await peer.request()
        await peer.say(PLAIN)
        if peer.number == 0:
            await peer.say(b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n")
        await peer.gone()

    async with socket_engine(serve) as engine, upstream_of(engine) as upstream:
        assert await upstream.ask("GET", "/x") == (200, b"ok")
        await until(lambda: engine.closed == 1)
        assert await upstream.ask("GET", "/x") == (200, b"ok")


@pytest.mark.parametrize("read_first", [False, True])
async def test_giving_an_answer_up_closes_its_connection(read_first: bool) -> None:
    async def serve(peer: Peer) -> None:
        await peer.request()
        await peer.say(OK + b"Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n")
        await peer.gone()

    async with socket_engine(serve) as engine, upstream_of(engine) as upstream:
        async with await upstream.send("GET", "/x", {}, None) as answer:
            if read_first:
                assert await answer.content.readany() == b"a"
        await until(lambda: engine.closed == 1)


@pytest.mark.parametrize("size", [0, 40 << 20], ids=["waiting", "sending"])
async def test_giving_a_request_up_closes_its_connection(size: int, caplog: pytest.LogCaptureFixture) -> None:
    reached = asyncio.Event()

    async def serve(peer: Peer) -> None:
        await peer.reader.readuntil(b"\r\n\r\n")
        reached.set()
        if not size:
            await peer.gone()
        # Else the body is left unread, so that the client cannot get rid of it.
        await until(lambda: peer.writer.is_closing() or asking.done())

    async with socket_engine(serve) as engine, upstream_of(engine) as upstream:
        asking = asyncio.create_task(upstream.send("POST", "/x", {}, b"x" * size))
        await reached.wait()
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        await until(lambda: engine.closed == 1)
    assert caplog.records == []


async def test_the_rest_of_a_body_is_waited_for_but_not_for_long() -> None:
    async def serve(peer: Peer) -> None:
        while True:
            request = await peer.request()
            await peer.say(OK + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\na\r\n")
            if "slow" in request.line:
                await peer.gone()
            await peer.say(b"0\r\n\r\n")

    async with socket_engine(serve) as engine, upstream_of(engine) as upstream:
        for path in ("/x", "/x", "/slow", "/x"):
            async with await upstream.send("GET", path, {}, None) as answer:
                assert await answer.content.readany() == b"a"
                await answer.drain(0.05 if path == "/slow" else 20)
        assert engine.opened == 2


async def test_closing_ends_what_is_under_way() -> None:
    async def silent(peer: Peer) -> None:
        await peer.request()
        await peer.gone()

    async with socket_engine(silent) as engine, upstream_of(engine) as upstream:
        asking = asyncio.create_task(upstream.ask("GET", "/x"))
        await until(lambda: engine.opened)
        await upstream.close()
        with pytest.raises(EngineUnreachable):
            await asking
        assert engine.opened == 1


async def test_packets_are_sent_at_once() -> None:
    async with socket_engine(always(PLAIN)) as engine, upstream_of(engine) as upstream:
        await upstream.ask("GET", "/x")
        (connection,) = upstream._pool._open
        peer = connection._transport.get_extra_info("socket")
        assert peer.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


async def test_nobody_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    async with upstream_of(f"http://127.0.0.1:{port}") as upstream:
        with pytest.raises(EngineUnreachable, match=f"cannot be reached at http://127.0.0.1:{port}: "):
            await upstream.ask("GET", "/x")


async def test_one_whose_asker_leaves_as_it_is_made_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    made = pool.Pool.opened

    def opened(self: pool.Pool, connection: Connection) -> None:
        made(self, connection)
        asking.cancel()

    monkeypatch.setattr(pool.Pool, "opened", opened)
    async with socket_engine(always(PLAIN)) as engine, upstream_of(engine) as upstream:
        asking = asyncio.create_task(upstream.ask("GET", "/x"))
        await asyncio.wait((asking,))
        assert asking.cancelled()
        await until(lambda: engine.closed == engine.opened == 1)
        await upstream.close()
        assert not upstream._pool._open


async def test_a_host_that_does_not_exist() -> None:
    async with upstream_of("http://no-such-host.invalid:1") as upstream:
        with pytest.raises(EngineUnreachable, match=r"cannot be reached at http://no-such-host.invalid:1: "):
            await upstream.ask("GET", "/x")


async def test_a_connection_that_is_not_taken_is_a_timeout() -> None:
    """A full backlog: the kernel answers nobody any more."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(0)
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    fill = [socket.socket() for _ in range(4)]
    try:
        for one in fill:
            one.setblocking(False)
            one.connect_ex(listener.getsockname())
        async with upstream_of(url, connect_timeout=0.2) as upstream:
            with pytest.raises(EngineTimeout, match=r"took no connection in 0.2 s"):
                await upstream.ask("GET", "/x")
    finally:
        for one in (*fill, listener):
            one.close()


async def test_a_chunked_answer_keeps_its_connection() -> None:
    async with (
        socket_engine(always(OK + b"Transfer-Encoding: chunked\r\n\r\n", chunked(b"a", b"b"))) as engine,
        upstream_of(engine) as upstream,
    ):
        for _ in range(3):
            assert await upstream.ask("GET", "/x") == (200, b"ab")
        assert engine.opened == 1


async def test_requests_of_clients_count_from_before_there_is_a_connection_and_our_own_never() -> None:
    """Whoever pauses or removes an engine waits for them: one too few, and a call is sampled by weights it is not told of."""
    with socket.socket() as busy:
        busy.bind(("127.0.0.1", 0))
        busy.listen(0)
        url = f"http://127.0.0.1:{busy.getsockname()[1]}"
        with socket.create_connection(busy.getsockname()):
            async with upstream_of(url) as upstream:
                own = asyncio.create_task(upstream.ask("GET", "/x"))
                await asyncio.sleep(0.02)
                assert upstream.in_flight == 0
                client = asyncio.create_task(upstream.send("POST", "/x", {}, b"x"))
                await asyncio.sleep(0.02)
                assert upstream.in_flight == 1
                for task in (own, client):
                    task.cancel()
                await asyncio.wait((own, client))
                assert upstream.in_flight == 0


async def test_requests_of_clients_count_to_the_last_byte_whatever_our_own_do() -> None:
    hold = asyncio.Event()

    async def serve(peer: Peer) -> None:
        while True:
            line = (await peer.request()).line
            await peer.say(OK + b"Content-Length: 2\r\n\r\no")
            if "/held" in line:
                await hold.wait()
            await peer.say(b"k")

    async with socket_engine(serve) as engine, upstream_of(engine) as upstream:
        answers = [await upstream.send("GET", "/held", {}, None) for _ in range(3)]
        seen = set()

        async def watch() -> None:
            while True:
                seen.add(upstream.in_flight)
                await asyncio.sleep(0)

        watching = asyncio.create_task(watch())
        for _ in range(20):
            assert await upstream.ask("GET", "/x") == (200, b"ok")
        watching.cancel()
        assert seen == {3}
        answers[0].release()
        await until(lambda: upstream.in_flight == 2)
        hold.set()
        await until(lambda: upstream.in_flight == 0)
        for answer in answers[1:]:
            assert await answer.read() == b"ok"


async def test_what_a_closed_one_held_is_free_at_once() -> None:
    """A loop of references to the parser would keep it until garbage is collected."""
    async with none_left(Connection, AnswerReader, Body):
        for serve in (once(OK + b"Connection: close\r\nContent-Length: 2\r\n\r\nok"), once(OK + b"\r\nok")):
            async with socket_engine(serve) as engine, upstream_of(engine) as upstream:
                assert await upstream.ask("GET", "/x") == (200, b"ok")
        await asyncio.sleep(0.05)
