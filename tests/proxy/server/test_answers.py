"""Answers: one for each request, in order, framed as the client can read it; and the ways in which there is none."""

import asyncio
import socket
import struct
from typing import cast

import pytest

from polarproxy.proxy.server.connection import _MOST_WAITING, Connection
from polarproxy.proxy.server.reader import RequestReader
from polarproxy.proxy.server.request import Request
from polarproxy.proxy.server.response import Response
from tests.garbage import none_left
from tests.proxy.server.raw_client import LIMIT, SECONDS, chunked, echo, house, post

GET = b"GET /a?b=c HTTP/1.1\r\nHost: h\r\n\r\n"


async def stream(http: Request) -> None:
    await http.begin(200, {"Content-Type": "text/event-stream"})
    await http.write(b"one")
    await http.write(b"")
    await http.end(b"two")


async def test_one_request_after_the_other() -> None:
    async with house(echo) as at, at.peer() as peer:
        for data, body in ((GET, b""), (post(b"hello"), b"hello"), (chunked(b"he", b"llo"), b"hello"), (GET, b"")):
            await peer.say(data)
            answer = await peer.answer()
            assert (answer.status, answer.body, answer.headers["content-length"]) == (200, body, str(len(body)))
            assert "connection" not in answer.headers
            assert answer.headers["date"].endswith("GMT")


async def test_requests_that_come_at_once_are_answered_in_order() -> None:
    """Also when the first one takes longest, and there are more than may wait."""
    count = 3 * _MOST_WAITING

    async def slow_first(http: Request) -> Response:
        await asyncio.sleep(0.02 if http.path == "/0" else 0)
        return Response(200, {}, http.path.encode() + await http.read())

    async with house(slow_first) as at, at.peer() as peer:
        await peer.say(*(post(b"!", f"/{number}") for number in range(count)))
        assert [(await peer.answer()).body for _ in range(count)] == [b"/%d!" % number for number in range(count)]


@pytest.mark.parametrize("step", [1, 7, 1000])
async def test_however_slowly_it_comes(step: int) -> None:
    data = post(b"hello", headers=b"X-Long: " + b"y" * 200 + b"\r\n") + chunked(b"x", trailer=b"T: u\r\n")
    async with house(echo) as at, at.peer() as peer:
        for start in range(0, len(data), step):
            peer.writer.write(data[start : start + step])
            await asyncio.sleep(0)
        assert [(await peer.answer()).body, (await peer.answer()).body] == [b"hello", b"x"]


async def test_a_stream_is_chunked() -> None:
    async with house(stream) as at, at.peer() as peer:
        for _ in range(2):
            await peer.say(GET)
            answer = await peer.answer()
            assert (answer.headers["transfer-encoding"], answer.body) == ("chunked", b"onetwo")


async def test_of_old_clients_it_ends_with_the_connection() -> None:
    async with house(stream) as at, at.peer() as peer:
        await peer.say(b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
        answer = await peer.answer()
        assert ("transfer-encoding" in answer.headers, answer.headers["connection"]) == (False, "close")
        assert answer.body == b"onetwo"


async def test_old_clients_may_ask_to_stay() -> None:
    async with house(echo) as at, at.peer() as peer:
        await peer.say(b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
        assert (await peer.answer()).headers["connection"] == "keep-alive"
        await peer.say(b"GET / HTTP/1.0\r\n\r\n")
        assert (await peer.answer()).headers["connection"] == "close"
        assert await peer.rest() == b""


async def test_a_client_that_wants_to_leave_is_let_go() -> None:
    async with house(echo) as at, at.peer() as peer:
        await peer.say(post(b"x", headers=b"Connection: close\r\n") + GET)
        assert (await peer.answer()).headers["connection"] == "close"
        assert await peer.rest() == b""


@pytest.mark.parametrize(("method", "status"), [("HEAD", 200), ("GET", 204), ("GET", 304)])
async def test_some_answers_have_no_body(method: str, status: int) -> None:
    async def handler(http: Request) -> Response | None:
        if http.raw_query:
            await http.begin(status, {}, 4)
            await http.write(b"four")
            await http.end()
            return None
        return Response(status, {}, b"four")

    async with house(handler) as at, at.peer() as peer:
        for query in ("", "?streamed"):
            await peer.say(f"{method} /{query} HTTP/1.1\r\n\r\n".encode())
            answer = await peer.answer(has_body=False)
            assert (answer.status, "content-length" in answer.headers) == (status, status == 200)
            assert ("transfer-encoding" in answer.headers) is False
        await peer.say(b"HEAD / HTTP/1.1\r\nConnection: close\r\n\r\n")
        await peer.answer(has_body=False)
        assert await peer.rest() == b""


async def test_a_client_that_asks_first_is_told_to_send() -> None:
    async with house(echo) as at, at.peer() as peer:
        head, body = post(b"hello", headers=b"Expect: 100-continue\r\n").split(b"\r\n\r\n")
        await peer.say(head + b"\r\n\r\n")
        assert (await peer.answer(has_body=False)).status == 100
        await peer.say(body)
        assert (await peer.answer()).body == b"hello"


async def test_it_is_not_told_so_when_the_body_would_be_too_large() -> None:
    async def handler(http: Request) -> Response:
        return Response(413)

    async with house(handler) as at, at.peer() as peer:
        await peer.say(b"POST / HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n" % (LIMIT + 1))
        assert (await peer.answer()).status == 413


async def test_an_answer_before_the_end_of_the_body_is_seen() -> None:
    """By a client that looks for it only when it has sent everything."""

    async def handler(http: Request) -> Response:
        return Response(401, {}, b"no")

    async with house(handler) as at, at.peer() as peer:
        await peer.say(post(b"x" * (LIMIT - 10)) + GET)
        assert [(await peer.answer()).status for _ in range(2)] == [401, 401]


async def test_garbage_is_answered_once_and_ends_the_connection() -> None:
    async with house(echo) as at:
        async with at.peer() as peer:
            await peer.say(b"hello\r\n\r\n", b"more\r\n\r\n")
            answer = await peer.answer()
            assert (answer.status, answer.headers["connection"]) == (400, "close")
            assert await peer.rest() == b""
        async with at.peer() as peer:
            await peer.say(post(b"first") + b"hello\r\n\r\n")
            assert (await peer.answer()).body == b"first"
            assert await peer.rest() == b""


async def test_a_body_that_cannot_be_read_is_the_handlers_to_refuse() -> None:
    seen: list[BaseException] = []

    async def handler(http: Request) -> Response:
        try:
            await http.read()
        except Exception as error:  # noqa: BLE001  (whatever it is, it is what is looked at)
            seen.append(error)
        return Response(400)

    async with house(handler) as at, at.peer() as peer:
        await peer.say(chunked(b"x")[:-5], b"no chunk\r\n")
        assert (await peer.answer()).status == 400
        assert await peer.rest() == b""
    assert "cannot be read as HTTP" in str(seen[0])


async def test_a_fault_of_ours_costs_one_request(caplog: pytest.LogCaptureFixture) -> None:
    async def handler(http: Request) -> Response | None:
        if http.path == "/late":
            await http.begin(200, {})
            await http.write(b"half")
        if http.path != "/good":
            raise RuntimeError("a fault of ours")
        return Response(200)

    async with house(handler) as at, at.peer() as peer:
        await peer.say(b"GET /bad HTTP/1.1\r\n\r\n", b"GET /good HTTP/1.1\r\n\r\n")
        assert [(await peer.answer()).status for _ in range(2)] == [500, 200]
        await peer.say(b"GET /late HTTP/1.1\r\n\r\n")
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await peer.answer()
    assert caplog.text.count("could not be answered") == 2


async def test_half_an_answer_is_never_taken_for_whole() -> None:
    async def handler(http: Request) -> None:
        await http.begin(200, {})
        await http.write(b"half")
        if http.path == "/cut":
            http.cut()
        if http.path == "/reset":
            http.reset()

    async with house(handler) as at:
        for path in ("/cut", "/reset", "/"):
            async with at.peer() as peer:
                await peer.say(f"GET {path} HTTP/1.1\r\n\r\n".encode())
                with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
                    await peer.answer()


async def test_a_header_with_a_line_break_is_not_sent(caplog: pytest.LogCaptureFixture) -> None:
    async def handler(http: Request) -> Response:
        return Response(200, {"X": "a\r\nSet-Cookie: b"})

    async with house(handler) as at, at.peer() as peer:
        await peer.say(GET)
        answer = await peer.answer()
        assert (answer.status, "set-cookie" in answer.headers) == (500, False)
    assert "line break" in caplog.text


@pytest.mark.parametrize("how", ["close", "reset"])
async def test_a_client_that_leaves_ends_what_is_done_for_it(how: str) -> None:
    ended = asyncio.Event()
    begun = asyncio.Event()

    async def handler(http: Request) -> Response:
        begun.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            ended.set()
            raise
        return Response()

    async with house(handler) as at, at.peer() as peer:
        await peer.say(GET)
        await begun.wait()
        if how == "reset":
            sock = peer.writer.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        peer.writer.transport.abort()
        async with asyncio.timeout(5):
            await ended.wait()


async def test_a_client_that_does_not_read_is_waited_for() -> None:
    sent = 0

    async def handler(http: Request) -> None:
        nonlocal sent
        await http.begin(200, {})
        for _ in range(300):
            await http.write(b"x" * 100_000)
            sent += 1
        await http.end()

    async with house(handler) as at, at.peer() as peer:
        await peer.say(GET)
        before = -1
        while sent != before:
            before = sent
            await asyncio.sleep(0.1)
        assert sent < 200
        assert len((await peer.answer()).body) == 30_000_000


async def test_another_protocol_gets_the_request_and_all_that_follows() -> None:
    heard: list[bytes] = []

    class Other(asyncio.Protocol):
        def data_received(self, data: bytes) -> None:
            heard.append(data)

    async def handler(http: Request) -> Response | None:
        if http.path == "/no":
            return Response(426)
        http.hand_over(Other())
        return None

    upgrade = b"HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
    async with house(handler) as at, at.peer() as peer:
        await peer.say(b"GET /no " + upgrade + b"GET /no HTTP/1.1\r\n\r\n")
        assert [(await peer.answer()).status for _ in range(2)] == [426, 426]
        await peer.say(b"GET /yes?a " + upgrade + b"\x81", b"\x82")
        async with asyncio.timeout(5):
            while len(b"".join(heard)) < len(b"GET /yes?a " + upgrade) + 2:  # noqa: ASYNC110  (a list signals nothing)
                await asyncio.sleep(0.005)
        assert b"".join(heard) == b"GET /yes?a " + upgrade + b"\x81\x82"


async def test_another_protocol_can_have_one_request_with_its_body() -> None:
    heard = bytearray()

    class Other(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            self.transport = cast("asyncio.Transport", transport)

        def data_received(self, data: bytes) -> None:
            heard.extend(data)
            self.transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
            self.transport.close()

    async def handler(http: Request) -> None:
        http.hand_over(Other(), await http.read())

    async with house(handler) as at:
        for data in (chunked(b"he", b"llo"), post(b"hello", headers=b"Expect: 100-continue\r\nKeep-Alive: 5\r\n")):
            async with at.peer() as peer:
                heard.clear()
                await peer.say(data[:40], data[40:])
                while (answer := await peer.answer()).status == 100:
                    continue
                assert (answer.status, await peer.rest()) == (200, b"")
            assert bytes(heard) == b"POST /x HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhello"


@pytest.mark.parametrize("name", [b"h2c", b"websocket"])
async def test_a_wish_to_switch_that_nobody_heeds_costs_no_body(name: bytes) -> None:
    """As curl says it with --http2: the request is one like any other, and so is the next."""
    wish = b"Connection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: x\r\nUpgrade: %b\r\n" % name
    later = chunked(b"he", b"llo").replace(b"\r\n\r\n", b"\r\n" + wish + b"\r\n", 1)
    async with house(echo) as at, at.peer() as peer:
        await peer.say(post(b"hello", headers=wish) + later, GET[:-2] + wish + b"\r\n" + post(b"x"))
        assert [(await peer.answer()).body for _ in range(4)] == [b"hello", b"hello", b"", b"x"]
        await peer.say(b"CONNECT h:1 HTTP/1.1\r\n\r\n")
        assert (await peer.answer()).status == 400


async def test_closing_lets_answers_end_and_takes_nothing_new() -> None:
    go_on = asyncio.Event()

    async def handler(http: Request) -> Response:
        await go_on.wait()
        return Response()

    async with house(handler) as at, at.peer() as busy, at.peer() as idle:
        await busy.say(GET)
        closing = asyncio.create_task(at.server.close(20))
        assert await idle.rest() == b""
        with pytest.raises(ConnectionError):
            await asyncio.open_connection("127.0.0.1", at.port)
        go_on.set()
        assert (await busy.answer()).headers["connection"] == "close"
        await closing


async def test_closing_breaks_off_what_takes_too_long() -> None:
    told = False

    async def handler(http: Request) -> Response:
        nonlocal told
        try:
            await asyncio.sleep(60)
        finally:
            told = True
        return Response()

    async with house(handler) as at, at.peer() as peer:
        await peer.say(GET)
        await at.server.close(0.05)
        assert told


@pytest.mark.parametrize("leaves", [False, True])
async def test_what_a_closed_connection_held_is_free_at_once(*, leaves: bool) -> None:
    """A loop of references to the parser would keep it, with its request, until garbage is collected."""
    heard = asyncio.Event()

    async def handle(http: Request) -> Response:
        await http.read()
        heard.set()
        if leaves:
            await asyncio.Event().wait()
        return Response(200, {}, b"")

    async with house(handle) as at, none_left(Connection, RequestReader, Request):
        async with at.peer() as peer:
            await peer.say(post(bytes(100_000), headers=b"" if leaves else b"Connection: close\r\n"))
            await asyncio.wait_for(heard.wait(), SECONDS)
        async with at.peer() as peer:
            await peer.say(post(bytes(100_000))[:50_000])
        await asyncio.sleep(0.1)
