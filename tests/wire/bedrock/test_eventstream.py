"""The binary framing, against itself and against botocore's parser."""

from __future__ import annotations

import struct
from zlib import crc32

import pytest
from botocore.eventstream import EventStreamBuffer  # type: ignore[import-untyped]
from hypothesis import given, settings
from hypothesis import strategies as st

from polarproxy.errors import BadReply
from polarproxy.wire.bedrock.eventstream import Message, MessageSplitter, encode_message

_NAMES = st.text(min_size=1, max_size=20)
MESSAGES = st.lists(
    st.builds(Message, st.dictionaries(_NAMES, st.text(max_size=40), max_size=4), st.binary(max_size=200)), max_size=4
)


@settings(max_examples=50)
@given(st.data(), MESSAGES)
def test_any_cutting_gives_the_messages_back(data: st.DataObject, messages: list[Message]) -> None:
    stream = b"".join(map(encode_message, messages))
    places = sorted(data.draw(st.sets(st.integers(0, len(stream)), max_size=8)))
    splitter, found = MessageSplitter(), list[Message]()
    for start, end in zip([0, *places], [*places, len(stream)], strict=True):
        found += splitter.feed(stream[start:end])
    assert found == messages
    assert splitter.rest() == b""


@settings(max_examples=50)
@given(MESSAGES)
def test_botocore_reads_the_same(messages: list[Message]) -> None:
    buffer = EventStreamBuffer()
    buffer.add_data(b"".join(map(encode_message, messages)))
    assert [Message(read.headers, read.payload) for read in buffer] == messages


@settings(max_examples=100)
@given(st.data(), st.builds(Message, st.dictionaries(_NAMES, st.text(max_size=9), max_size=2), st.binary(max_size=30)))
def test_a_damaged_bit_is_noticed(data: st.DataObject, message: Message) -> None:
    stream = bytearray(encode_message(message))
    bit = data.draw(st.integers(0, len(stream) * 8 - 1))
    stream[bit // 8] ^= 1 << bit % 8
    with pytest.raises(BadReply):
        MessageSplitter().feed(bytes(stream))


def test_a_message_that_is_not_whole_waits() -> None:
    data = encode_message(Message({"a": "b"}, b"payload"))
    splitter = MessageSplitter()
    assert splitter.feed(data[:-1]) == []
    assert splitter.rest() == data[:-1]
    assert splitter.feed(data[-1:]) == [Message({"a": "b"}, b"payload")]


def framed(headers: bytes, length: int | None = None, headers_length: int | None = None) -> bytes:
    """A message with right checksums, whatever its headers and lengths are."""
    sizes = (
        16 + len(headers) if length is None else length,
        len(headers) if headers_length is None else headers_length,
    )
    prelude = struct.pack("!II", *sizes)
    data = prelude + struct.pack("!I", crc32(prelude)) + headers
    return data + struct.pack("!I", crc32(data))


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (0, b""),
        (1, b""),
        (2, b"\x01"),
        (3, b"\x00\x01"),
        (4, bytes(4)),
        (5, bytes(8)),
        (6, b"\x00\x02ab"),
        (8, bytes(8)),
        (9, bytes(16)),
    ],
)
def test_headers_that_are_no_strings_are_passed_over(kind: int, value: bytes) -> None:
    headers = b"\x01x" + bytes([kind]) + value + b"\x01y\x07\x00\x01z"
    assert MessageSplitter().feed(framed(headers)) == [Message({"y": "z"}, b"")]


@pytest.mark.parametrize(
    "data",
    [
        framed(b"\x01x\x0a"),
        framed(b"\x01x\x07\x00\x09z"),
        framed(b"\x01x\x07"),
        framed(b"\x09x"),
        framed(b"\x01\xff\x00"),
        framed(b"", length=15),
        framed(b"", length=20, headers_length=8),
        framed(b"", length=1 << 30),
    ],
)
def test_what_no_sender_means(data: bytes) -> None:
    with pytest.raises(BadReply):
        MessageSplitter().feed(data)
