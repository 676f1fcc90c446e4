"""Streams, event by event."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from polarproxy.errors import BadReply
from polarproxy.model import Usage
from polarproxy.wire.bedrock.eventstream import Message, MessageSplitter, encode_message
from polarproxy.wire.bedrock.stream import Encoder, decode_stream
from polarproxy.wire.neutral.reply import (
    ArgumentsPiece,
    Begin,
    Final,
    Finished,
    Piece,
    TextPiece,
    ThinkingPiece,
    ToolBegin,
    fold,
)
from polarproxy.wire.neutral.request import ToolUse
from polarproxy.wire.neutral.seal import seal
from tests.wire.neutral.strategies import envelope

USAGE = Usage(10, 5, 4)


def events(data: bytes) -> list[tuple[str, Any]]:
    """Name and payload of each event."""
    splitter = MessageSplitter()
    messages = splitter.feed(data)
    assert splitter.rest() == b""
    for message in messages:
        assert message.headers[":message-type"] == "event"
        assert message.headers[":content-type"] == "application/json"
    return [(message.headers[":event-type"], json.loads(message.payload)) for message in messages]


def delta(index: int, **members: Any) -> tuple[str, Any]:
    return ("contentBlockDelta", {"contentBlockIndex": index, "delta": members})


def stop(index: int) -> tuple[str, Any]:
    return ("contentBlockStop", {"contentBlockIndex": index})


START = ("messageStart", {"role": "assistant"})
METADATA = (
    "metadata",
    {
        "usage": {"inputTokens": 6, "outputTokens": 5, "totalTokens": 15, "cacheReadInputTokens": 4},
        "metrics": {"latencyMs": 0},
    },
)


def test_each_piece_leaves_at_once_but_no_call_ends_before_the_reply() -> None:
    encoder = Encoder(envelope())
    told: list[tuple[Piece, list[tuple[str, Any]]]] = [
        (Begin(10), [START]),
        (ThinkingPiece("H"), [delta(0, reasoningContent={"text": "H"})]),
        (ThinkingPiece("m"), [delta(0, reasoningContent={"text": "m"})]),
        (TextPiece("I "), [delta(0, reasoningContent={"signature": seal("Hm")}), stop(0), delta(1, text="I ")]),
        (TextPiece("call"), [delta(1, text="call")]),
        (
            ToolBegin(0, "c0", "read"),
            [
                stop(1),
                (
                    "contentBlockStart",
                    {"start": {"toolUse": {"toolUseId": "c0", "name": "read"}}, "contentBlockIndex": 2},
                ),
            ],
        ),
        (ArgumentsPiece(0, '{"a" :'), [delta(2, toolUse={"input": '{"a" :'})]),
        (ArgumentsPiece(0, " 1}"), [delta(2, toolUse={"input": " 1}"})]),
        (ToolBegin(1, "c1", "run"), [delta(2, toolUse={"input": ""})]),
        (ArgumentsPiece(1, "{}"), [delta(2, toolUse={"input": ""})]),
        (TextPiece("So."), [delta(2, toolUse={"input": ""})]),
        (Finished("tool_calls"), []),
        (
            Final(USAGE),
            [
                stop(2),
                (
                    "contentBlockStart",
                    {"start": {"toolUse": {"toolUseId": "c1", "name": "run"}}, "contentBlockIndex": 3},
                ),
                delta(3, toolUse={"input": "{}"}),
                stop(3),
                delta(4, text="So."),
                stop(4),
                ("messageStop", {"stopReason": "tool_use"}),
                METADATA,
            ],
        ),
    ]
    for piece, expected in told:
        assert events(encoder.feed(piece)) == expected
    assert encoder.losses == []


def test_each_block_of_reasoning_has_its_own_signature() -> None:
    encoder = Encoder(envelope())
    pieces: list[Piece] = [Begin(), ThinkingPiece("a"), TextPiece("b"), ThinkingPiece("c"), Final(None)]
    told = events(b"".join(encoder.feed(piece) for piece in pieces))
    signed = [event for event in told if "signature" in str(event)]
    assert signed == [
        delta(0, reasoningContent={"signature": seal("a")}),
        delta(2, reasoningContent={"signature": seal("c")}),
    ]


def test_the_end_tells_the_stop_string_and_the_time() -> None:
    encoder = Encoder(replace(envelope(), elapsed_ms=lambda: 31))
    encoder.feed(Begin())
    encoder.feed(Finished("stop_sequence", "END"))
    (name, payload), (_, metadata) = events(encoder.feed(Final(USAGE)))
    assert name == "messageStop"
    assert payload == {"stopReason": "stop_sequence", "additionalModelResponseFields": {"stop_sequence": "END"}}
    assert metadata["metrics"] == {"latencyMs": 31}


def test_a_stream_that_was_given_up_has_an_end_too() -> None:
    encoder = Encoder(envelope())
    assert events(encoder.feed(TextPiece("a"))) == [START, delta(0, text="a")]
    assert events(encoder.feed(Final(None))) == [
        stop(0),
        ("messageStop", {"stopReason": "malformed_model_output"}),
        ("metadata", {"usage": {"inputTokens": 0, "outputTokens": 0, "totalTokens": 0}, "metrics": {"latencyMs": 0}}),
    ]
    assert [loss.where for loss in encoder.losses] == ["usage"]


def test_arguments_that_come_late_go_to_their_own_call() -> None:
    encoder = Encoder(envelope())
    pieces: list[Piece] = [
        Begin(),
        ToolBegin(0, "c0", "a"),
        ToolBegin(1, "c1", "b"),
        ArgumentsPiece(0, "{}"),
        ArgumentsPiece(1, "[]"),
        Finished("tool_calls"),
        Final(USAGE),
    ]
    reply = fold(decode_stream([b"".join(encoder.feed(piece) for piece in pieces)]))
    assert reply.choices[0].parts == (ToolUse("c0", "a", "{}"), ToolUse("c1", "b", "[]"))


def test_only_the_first_choice_is_told() -> None:
    encoder = Encoder(envelope())
    pieces: list[Piece] = [
        Begin(),
        TextPiece("a"),
        TextPiece("b", 1),
        Finished("stop"),
        Finished("stop", None, 1),
        Final(USAGE),
    ]
    told = decode_stream([encoder.feed(piece) for piece in pieces])
    assert told == [Begin(), TextPiece("a"), Finished("stop"), Final(USAGE)]
    assert [loss.where for loss in encoder.losses] == ["choices[1]"]


@pytest.mark.parametrize(
    ("status", "name"),
    [
        (400, "validationException"),
        (404, "validationException"),
        (429, "throttlingException"),
        (500, "internalServerException"),
        (502, "modelStreamErrorException"),
        (503, "serviceUnavailableException"),
        (504, "modelStreamErrorException"),
    ],
)
def test_an_error_in_the_middle_is_an_exception(status: int, name: str) -> None:
    data = Encoder(envelope()).error(status, 'engine "gone"')
    (message,) = MessageSplitter().feed(data)
    assert message.headers == {
        ":exception-type": name,
        ":content-type": "application/json",
        ":message-type": "exception",
    }
    payload = json.loads(message.payload)
    assert payload["message"] == 'engine "gone"'
    assert payload.get("originalStatusCode") == (status if name == "modelStreamErrorException" else None)
    with pytest.raises(BadReply, match=f'{name}: engine "gone"'):
        decode_stream([data])


def event(name: str, payload: bytes) -> bytes:
    return encode_message(Message({":event-type": name, ":message-type": "event"}, payload))


def test_events_and_members_that_only_others_send_are_passed_over() -> None:
    usage = b'{"inputTokens":1,"outputTokens":2,"totalTokens":3}'
    stream = [
        event("messageStart", b'{"role":"assistant","p":"abcd"}'),
        event("contentBlockDelta", b'{"contentBlockIndex":0,"delta":{"text":""},"p":"ab"}'),
        event("contentBlockDelta", b'{"contentBlockIndex":0,"delta":{"citation":{"title":"t"}}}'),
        event("contentBlockDelta", b'{"contentBlockIndex":0,"delta":{"text":"a"},"p":"ab"}'),
        event("contentBlockStart", b'{"contentBlockIndex":1,"start":{"image":{"format":"png"}}}'),
        event("newEvent", b"{}"),
        event("messageStop", b'{"stopReason":"end_turn"}'),
        event("metadata", b'{"usage":' + usage + b',"metrics":{"latencyMs":1},"trace":{}}'),
    ]
    assert decode_stream(stream) == [Begin(), TextPiece("a"), Finished("stop"), Final(Usage(1, 2))]


@pytest.mark.parametrize(
    "stream",
    [
        [],
        [event("messageStart", b"{}")],
        [event("metadata", b"{}"), b"\x00"],
        [event("messageStop", b"{}")],
        [event("messageStop", b"{")],
        [event("contentBlockDelta", b'{"contentBlockIndex":0,"delta":{"toolUse":{"input":"x"}}}')],
    ],
)
def test_streams_that_cannot_be_read(stream: list[bytes]) -> None:
    with pytest.raises(BadReply):
        decode_stream(stream)
