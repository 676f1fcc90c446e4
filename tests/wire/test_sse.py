"""Law 9: however a byte stream is cut, the same events come out, and joined they are the stream."""

import json
import re
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from polarproxy.wire.sse import DONE, EventSplitter, encode_event, event_data

PIECES = [
    b"data: ",
    b"data:",
    b"data: {}",
    b"[DONE]",
    b": keep-alive",
    b"event: x",
    b"id",
    b"x",
    b" ",
    "ü\u2028".encode(),
]
STREAMS = st.lists(st.sampled_from([*PIECES, b"\n", b"\r\n", b"\r", b"\n\n", b"\r\n\r\n", b"\r\r"])).map(b"".join)
CUTS = st.lists(st.integers(0, 80))
RECORDED = Path(__file__).parent.parent / "fixtures" / "vllm"


def cut(stream: bytes, places: Sequence[int]) -> list[bytes]:
    edges = sorted({0, len(stream), *(place for place in places if place < len(stream))})
    return [stream[start:stop] for start, stop in pairwise(edges)]


def feed(chunks: Sequence[bytes]) -> tuple[list[bytes], bytes]:
    splitter = EventSplitter()
    return [event for chunk in chunks for event in splitter.feed(chunk)], splitter.rest()


def specified(stream: bytes) -> list[bytes]:
    """The data of each event as WHATWG HTML dispatches it, line by line, for a stream of whole events."""
    dispatched, data = list[bytes](), list[bytes]()
    for line in re.split(rb"\r\n|\n|\r", stream):
        if line.startswith(b"data:"):
            data.append(line.removeprefix(b"data:").removeprefix(b" "))
        elif not line and data:
            dispatched.append(b"\n".join(data))
            data.clear()
    return dispatched


@given(STREAMS, CUTS)
@example(b"data: 1\r\n\r\ndata: 2\r\r: c\n\n", [8, 9, 10, 11])
@example(b"data: 1\r\r\ndata: 2\n\r\n", [8, 9])
@settings(max_examples=500)
def test_any_cutting_yields_the_same_events(stream: bytes, places: Sequence[int]) -> None:
    events, rest = feed([stream])
    assert feed(cut(stream, places)) == (events, rest)
    assert feed([stream[place : place + 1] for place in range(len(stream))]) == (events, rest)
    assert b"".join(events) + rest == stream


@given(STREAMS)
@example(b"data: 1\n\r\ndata: 2\r\n\ndata: 3\r\n\r")
@settings(max_examples=500)
def test_the_events_are_those_of_the_specification(stream: bytes) -> None:
    whole = stream + b"\n\n"
    events, rest = feed([whole])
    assert [data for data in map(event_data, events) if data is not None] == specified(whole)
    assert rest in (b"", b"\n")


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_every_line_end_of_the_specification(end: bytes) -> None:
    stream = end.join(
        [b": hello", b"", b"event: x", b"data: one", b"data:two", b"id: 7", b"", b"data: [DONE]", b"", b"!"]
    )
    events, rest = feed([stream])
    assert [event_data(event) for event in events] == [None, b"one\ntwo", DONE]
    assert rest == b"!"


def test_only_one_space_after_the_colon_is_not_data() -> None:
    assert event_data(b"data:  x \n\n") == b" x "
    assert event_data(b"data:\n\n") == b""


def test_line_separators_of_unicode_are_data() -> None:
    text = 'data: {"a":"\u2028\u0085"}\n\n'
    assert event_data(text.encode()) == text[6:-2].encode()


def test_what_is_encoded_is_read_back() -> None:
    assert event_data(encode_event(b'{"a": 1}')) == b'{"a": 1}'
    assert feed([encode_event(DONE)]) == ([b"data: [DONE]\n\n"], b"")


def test_a_stream_cut_inside_an_event_leaves_the_rest() -> None:
    assert feed([b"data: 1\n\nda", b"ta: 2\n"]) == ([b"data: 1\n\n"], b"data: 2\n")


@pytest.mark.parametrize("size", [1, 7, 4096])
def test_a_recorded_stream(size: int) -> None:
    stream = json.loads((RECORDED / "two_usage.json").read_text(encoding="utf-8"))["stream"]["body"].encode()
    events, rest = feed([stream[start : start + size] for start in range(0, len(stream), size)])
    assert b"".join(events) == stream
    assert rest == b""
    assert event_data(events[-1]) == DONE
    assert all(json.loads(event_data(event) or b"") for event in events[:-1])
