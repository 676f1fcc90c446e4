"""Answers as bytes: however they are framed and cut, the same answer is read, and half of one is never taken for whole."""

import itertools
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polarproxy.errors import EngineUnreachable
from polarproxy.proxy.http.answer import Answer, AnswerReader


@dataclass
class Heard:
    """Stands for the connection, and notes what it is told."""

    answers: list[Answer] = field(default_factory=list)
    kept: list[bool] = field(default_factory=list)

    def answered(self, answer: Answer) -> None:
        self.answers.append(answer)

    def finished(self, *, keep_alive: bool) -> None:
        self.kept.append(keep_alive)

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def close(self) -> None: ...


def read(data: bytes, cuts: list[int], *, head_only: bool = False) -> tuple[Heard, bool]:
    """What is heard of these bytes, cut at these places, before the peer hangs up; whether the answer was whole then."""
    heard = Heard()
    reader = AnswerReader(heard)
    reader.expect(head_only=head_only)
    places = [0, *sorted(cuts), len(data)]
    for start, stop in itertools.pairwise(places):
        if start < stop and reader.expecting:
            reader.feed(data[start:stop])
    return heard, reader.hung_up()


def body_of(answer: Answer) -> bytes:
    return answer.content._take()


@dataclass(frozen=True)
class Said:
    """An answer, and its bytes."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes
    data: bytes
    framed: bool
    """Whether its end is told by its bytes, and not by the end of the connection."""


NAMES = st.sampled_from(["X-A", "x-a", "X-B", "Set-Cookie", "Server", "Content-Type"])
VALUES = st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]), max_size=8)


@st.composite
def said(draw: st.DrawFn) -> Said:
    status = draw(st.sampled_from([200, 200, 201, 307, 404, 500, 599]))
    headers = draw(st.lists(st.tuples(NAMES, VALUES), max_size=4))
    pieces = draw(st.lists(st.binary(min_size=1, max_size=40), max_size=4))
    framing = draw(st.sampled_from(["length", "chunked", "close"]))
    body = b"".join(pieces)
    if framing == "length":
        headers.append(("Content-Length", str(len(body))))
        sent = body
    elif framing == "chunked":
        headers.append(("Transfer-Encoding", draw(st.sampled_from(["chunked", "Chunked"]))))
        extension = draw(st.sampled_from([b"", b";a=b"]))
        trailer = draw(st.sampled_from([b"", b"X-Trailer: late\r\n"]))
        chunks = (b"%x%b\r\n%b\r\n" % (len(piece), extension, piece) for piece in pieces)
        sent = b"".join(chunks) + b"0\r\n" + trailer + b"\r\n"
    else:
        sent = body
    interim = b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" * draw(st.integers(0, 2))
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers).encode()
    data = interim + b"HTTP/1.1 %d What\r\n" % status + lines + b"\r\n" + sent
    return Said(status, headers, body, data, framing != "close")


@settings(max_examples=150, deadline=None)
@given(said(), st.data())
def test_any_cutting_gives_the_same_answer(one: Said, data: st.DataObject) -> None:
    cuts = data.draw(st.lists(st.integers(0, len(one.data)), max_size=8))
    heard, whole = read(one.data, cuts)
    assert whole
    (answer,) = heard.answers
    assert (answer.status, list(answer.headers.items()), body_of(answer)) == (one.status, one.headers, one.body)
    assert heard.kept == [one.framed]


@settings(max_examples=100, deadline=None)
@given(said(), st.data())
def test_half_an_answer_is_not_a_whole_one(one: Said, data: st.DataObject) -> None:
    """Unless nothing but the connection's end says where it ends: then what has come is all there is."""
    end = data.draw(st.integers(0, len(one.data) - 1))
    heard, whole = read(one.data[:end], data.draw(st.lists(st.integers(0, end), max_size=4)))
    assert not (whole and one.framed)
    if whole:
        assert one.body.startswith(body_of(heard.answers[0]))


def test_every_single_byte_alone() -> None:
    data = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
    heard, whole = read(data, list(range(len(data))))
    assert (whole, body_of(heard.answers[0]), heard.kept) == (True, b"abcde", [True])


@pytest.mark.parametrize("status", [204, 304])
def test_some_statuses_have_no_body_whatever_they_say(status: int) -> None:
    heard, whole = read(b"HTTP/1.1 %d X\r\nContent-Length: 5\r\n\r\n" % status, [])
    assert (whole, heard.kept, body_of(heard.answers[0])) == (True, [True], b"")


def test_the_answer_to_a_head_request_has_no_body() -> None:
    heard, whole = read(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", [], head_only=True)
    assert (whole, body_of(heard.answers[0])) == (True, b"")
    assert heard.answers[0].headers["Content-Length"] == "5"


@pytest.mark.parametrize(
    ("version", "connection", "kept"),
    [("1.1", "keep-alive", True), ("1.1", "close", False), ("1.0", "close", False), ("1.0", "keep-alive", True)],
)
def test_the_engine_says_whether_the_connection_is_kept(version: str, connection: str, kept: bool) -> None:
    head = f"HTTP/{version} 200 OK\r\nConnection: {connection}\r\nContent-Length: 2\r\n\r\nok"
    assert read(head.encode(), [])[0].kept == [kept]


def test_bytes_that_are_no_text_survive_in_a_header() -> None:
    heard, _ = read(b"HTTP/1.1 200 OK\r\nX-Odd: \xff\xc3\xa9\r\nContent-Length: 0\r\n\r\n", [])
    assert heard.answers[0].headers["X-Odd"].encode("utf-8", "surrogateescape") == b"\xff\xc3\xa9"


NO_HTTP = {
    "another protocol": b"SSH-2.0-OpenSSH\r\n",
    "a chunk size that is none": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    "a length that is none": b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
    "two lengths": b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
    "a length and chunks": b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
    "a line break in a header": b"HTTP/1.1 200 OK\r\nX: a\rY: b\r\n\r\n",
    "a change of protocol": b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n",
    "a head without end": b"HTTP/1.1 200 OK\r\n" + b"X: %b\r\n" % (b"x" * 1000) * 300,
    "two answers": b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\naHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nb",
    "more than it announced": b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nabcdef",
}


@pytest.mark.parametrize("name", NO_HTTP)
def test_what_is_not_one_answer_is_a_fault(name: str) -> None:
    with pytest.raises(EngineUnreachable):
        read(NO_HTTP[name], [])


def test_bytes_that_nobody_asked_for_are_a_fault() -> None:
    reader = AnswerReader(Heard())
    with pytest.raises(EngineUnreachable, match="nobody had asked"):
        reader.feed(b"HTTP/1.1 408 Request Timeout\r\n\r\n")
