"""Requests as bytes: however they are framed and cut, the same requests are read, and half of one is never taken for whole."""

import asyncio
import itertools
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polarproxy.errors import BadRequest, TooLarge
from polarproxy.proxy.server.reader import MAX_HEAD, RequestReader
from polarproxy.proxy.server.request import Request
from tests.proxy.server.raw_client import chunked, post

LIMIT = 1000


@dataclass
class Desk:
    """Stands for the connection, and notes what it is told."""

    requests: list[Request] = field(default_factory=list)
    done: list[Request] = field(default_factory=list)
    paused: int = 0
    closing: bool = False

    @property
    def transport(self) -> asyncio.Transport:
        raise AssertionError("nothing is answered here")

    def arrived(self, request: Request) -> None:
        self.requests.append(request)

    def completed(self, request: Request) -> None:
        self.done.append(request)

    async def drained(self) -> None: ...

    def hand_over(self, protocol: asyncio.Protocol, request: bytes) -> None: ...

    def pause_reading(self) -> None:
        self.paused += 1

    def resume_reading(self) -> None:
        self.paused -= 1


def read(data: bytes, cuts: list[int] | None = None) -> tuple[Desk, bytes | None]:
    """What is heard of these bytes, cut at these places, and what comes behind a request to switch protocols."""
    desk = Desk()
    reader = RequestReader(desk, LIMIT)
    for start, stop in itertools.pairwise([0, *sorted(cuts or []), len(data)]):
        if start < stop and (tail := reader.feed(data[start:stop])) is not None:
            return desk, tail + data[stop:]
    return desk, None


def body_of(request: Request) -> bytes:
    return request._body._take()


NAMES = st.sampled_from(["X-A", "x-a", "X-B", "Cookie", "Content-Type"])
VALUES = st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]), max_size=8)
PATHS = st.sampled_from(["/", "/v1/x", "/a%2Fb?c=d&e", "/%20", "//x", "http://h:1/p?q"])


@st.composite
def asked(draw: st.DrawFn) -> tuple[tuple[object, ...], bytes]:
    """A request, and its bytes."""
    method, path = draw(st.sampled_from(["GET", "POST", "DELETE", "HEAD", "OPTIONS"])), draw(PATHS)
    headers = draw(st.lists(st.tuples(NAMES, VALUES), max_size=4))
    pieces = draw(st.lists(st.binary(min_size=1, max_size=40), max_size=4))
    framing = draw(st.sampled_from(["none", "length", "chunked"]))
    sent = b"" if framing == "none" else b"".join(pieces)
    if framing == "length":
        headers.append(("Content-Length", str(len(sent))))
    elif framing == "chunked":
        headers.append(("Transfer-Encoding", "chunked"))
        trailer = draw(st.sampled_from([b"", b"X-Trailer: late\r\n"]))
        sent = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n" + trailer + b"\r\n"
    head = "".join([f"{method} {path} HTTP/1.1\r\n", *(f"{name}: {value}\r\n" for name, value in headers), "\r\n"])
    where = {"http://h:1/p?q": ("/p", "q"), "/a%2Fb?c=d&e": ("/a%2Fb", "c=d&e")}.get(path, (path, ""))
    return (method, *where, headers, b"" if framing == "none" else b"".join(pieces)), head.encode() + sent


@given(st.data())
def test_any_cutting_gives_the_same_requests(data: st.DataObject) -> None:
    wanted = data.draw(st.lists(asked(), min_size=1, max_size=3))
    whole = b"".join(sent for _, sent in wanted)
    cuts = data.draw(st.lists(st.integers(0, len(whole)), max_size=12))
    desk, tail = read(whole, cuts)
    found = [(r.method, r.path, r.raw_query, list(r.headers.items()), body_of(r)) for r in desk.requests]
    assert (found, tail) == ([said for said, _ in wanted], None)
    assert desk.done == desk.requests
    assert all(request._body.ended and request.keep_alive for request in desk.requests)


@given(asked(), st.integers(min_value=1))
def test_half_a_request_is_not_whole(one: tuple[object, bytes], missing: int) -> None:
    _, data = one
    desk, _ = read(data[: -(missing % len(data) or 1)])
    assert desk.done == []


BROKEN = {
    "no HTTP": b"hello\r\n\r\n",
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "two lengths": b"POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
    "a length and chunks": b"POST / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
    "a length below nothing": b"POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
    "a length without end": b"POST / HTTP/1.1\r\nContent-Length: %b\r\n\r\n" % (b"9" * 40),
    "a chunk that is none": b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
    "a folded header": b"GET / HTTP/1.1\r\nX: a\r\n b\r\n\r\n",
    "a space before the colon": b"GET / HTTP/1.1\r\nContent-Length : 1\r\n\r\n",
    "a bare CR in a header": b"GET / HTTP/1.1\r\nX: a\rY: b\r\n\r\n",
    "a NUL in a header": b"GET / HTTP/1.1\r\nX: a\0b\r\n\r\n",
    "a URL that is none": b"GET http://[x/ HTTP/1.1\r\n\r\n",
    "a long target": b"GET /" + b"x" * MAX_HEAD + b" HTTP/1.1\r\n\r\n",
    "a long header": b"GET / HTTP/1.1\r\nX: " + b"x" * MAX_HEAD + b"\r\n\r\n",
    "many headers": b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * MAX_HEAD + b"\r\n",
}


@pytest.mark.parametrize("name", BROKEN)
@pytest.mark.parametrize("step", [1 << 20, 1000])
def test_what_is_no_request_is_refused(name: str, step: int) -> None:
    with pytest.raises(BadRequest):
        read(BROKEN[name], list(range(0, len(BROKEN[name]), step)))


@pytest.mark.parametrize(
    "begin", [b"GET /", b"GET / HTTP/1.1\r\nX: ", chunked(b"x")[:-2] + b"X: ", chunked(b"x")[:-5] + b"1;"], ids=repr
)
def test_a_line_that_never_ends_is_not_kept(begin: bytes) -> None:
    reader = RequestReader(Desk(), LIMIT)
    reader.feed(begin)

    def go_on() -> None:
        for _ in range(MAX_HEAD):
            reader.feed(b"x" * 1000)

    with pytest.raises(BadRequest, match="longer than"):
        go_on()


@pytest.mark.parametrize("data", [post(b"x" * (LIMIT + 1)), chunked(*[b"x" * 100] * 11)], ids=["length", "chunks"])
async def test_a_body_beyond_the_limit_is_dropped(data: bytes) -> None:
    desk, _ = read(data + post(b"next"), [100, 500, 900])
    first, second = desk.requests
    assert first._size == 1100 if b"chunked" in data else LIMIT + 1
    assert sum(map(len, first._body._pieces)) <= LIMIT
    with pytest.raises(TooLarge):
        await first.read()
    assert await second.read() == b"next"


async def test_a_body_that_nobody_reads_is_left_with_the_client() -> None:
    desk = Desk()
    reader = RequestReader(desk, 1 << 20)
    reader.feed(post(b"x" * (1 << 19))[: 1 << 18])
    assert desk.paused == 0
    reader.feed(b"x" * 1000)
    assert desk.paused == 1
    reading = asyncio.create_task(desk.requests[0].read())
    await asyncio.sleep(0)
    assert desk.paused == 0
    reader.feed(post(b"x" * (1 << 19))[(1 << 18) + 1000 :])
    assert len(await reading) == 1 << 19
    assert desk.paused == 0


def test_what_follows_a_request_to_switch_protocols_is_not_read() -> None:
    upgrade = b"GET / HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
    for cuts in ([], [5], [len(upgrade)], [len(upgrade) + 1]):
        desk, tail = read(upgrade + b"\x81\x05hello", cuts)
        assert (len(desk.done), tail or b"") == (1, b"\x81\x05hello" if tail else b"")
