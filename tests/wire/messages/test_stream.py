"""Streams, event by event."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from polarproxy.errors import BadReply
from polarproxy.model import Usage
from polarproxy.wire.messages.errors import KEEPALIVE
from polarproxy.wire.messages.stream import Encoder, decode_stream
from polarproxy.wire.neutral.reply import (
    ArgumentsPiece,
    Begin,
    Choice,
    Final,
    Finished,
    Piece,
    TextPiece,
    ThinkingPiece,
    ToolBegin,
    fold,
)
from polarproxy.wire.neutral.request import Text, Thinking, ToolUse
from polarproxy.wire.neutral.seal import seal
from polarproxy.wire.sse import EventSplitter, event_data
from tests.wire.neutral.strategies import envelope

if TYPE_CHECKING:
    from polarproxy.wire.neutral.encoder import StreamEncoder


def _events(stream: bytes) -> list[Any]:
    """The data of each event; the name of an event is its type."""
    events = []
    for event in EventSplitter().feed(stream):
        value = msgspec.json.decode(event_data(event) or b"")
        assert event.startswith(b"event: %b\ndata: " % value["type"].encode())
        events.append(value)
    return events


def _brief(stream: bytes) -> list[str]:
    """Each event in one word and its index; deltas with what they say."""
    brief = []
    for event in _events(stream):
        index = event.get("index", "")
        match event["type"]:
            case "content_block_start":
                brief.append(f"start {index} {event['content_block']['type']}")
            case "content_block_delta":
                _, said = event["delta"].values()
                brief.append(f"delta {index} {said}")
            case "content_block_stop":
                brief.append(f"stop {index}")
            case kind:
                brief.append(kind)
    return brief


def _feed(encoder: Encoder, *pieces: Piece) -> bytes:
    return b"".join(encoder.feed(piece) for piece in pieces)


def test_a_stream_with_everything() -> None:
    encoder: StreamEncoder = Encoder(envelope())
    pieces: list[Piece] = [
        Begin(100, 64),
        ThinkingPiece("Let "),
        ThinkingPiece("me see."),
        TextPiece("Look"),
        TextPiece("ing."),
        ToolBegin(0, "call_1", "read"),
        ArgumentsPiece(0, '{"pa'),
        ArgumentsPiece(0, 'th": "a"}'),
        Finished("tool_calls"),
        Final(Usage(100, 20, 64, 5)),
    ]
    counts = {"input_tokens": 36, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 64}
    assert _events(b"".join(encoder.feed(piece) for piece in pieces)) == [
        {
            "type": "message_start",
            "message": {
                "type": "message",
                "id": "msg_0123456789abcdef0123456789abcdef",
                "role": "assistant",
                "model": "asked-model",
                "content": [],
                "stop_reason": None,
                "stop_sequence": None,
                "usage": counts | {"output_tokens": 0},
            },
        },
        {
            "type": "content_block_start",
            "index": 0,
            "content_block": {"type": "thinking", "thinking": "", "signature": ""},
        },
        {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "Let "}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "me see."}},
        {
            "type": "content_block_delta",
            "index": 0,
            "delta": {"type": "signature_delta", "signature": seal("Let me see.")},
        },
        {"type": "content_block_stop", "index": 0},
        {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "Look"}},
        {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "ing."}},
        {"type": "content_block_stop", "index": 1},
        {
            "type": "content_block_start",
            "index": 2,
            "content_block": {"type": "tool_use", "id": "call_1", "name": "read", "input": {}},
        },
        {"type": "content_block_delta", "index": 2, "delta": {"type": "input_json_delta", "partial_json": '{"pa'}},
        {"type": "content_block_delta", "index": 2, "delta": {"type": "input_json_delta", "partial_json": 'th": "a"}'}},
        {"type": "content_block_stop", "index": 2},
        {
            "type": "message_delta",
            "delta": {"stop_reason": "tool_use", "stop_sequence": None},
            "usage": counts | {"output_tokens": 20, "output_tokens_details": {"thinking_tokens": 5}},
        },
        {"type": "message_stop"},
    ]
    assert encoder.losses == []


def test_each_piece_leaves_at_once() -> None:
    encoder = Encoder(envelope())
    assert _brief(encoder.feed(Begin(3))) == ["message_start"]
    assert _brief(encoder.feed(TextPiece("a"))) == ["start 0 text", "delta 0 a"]
    assert _brief(encoder.feed(TextPiece("b"))) == ["delta 0 b"]
    assert _brief(encoder.feed(ToolBegin(0, "i", "n"))) == ["stop 0", "start 1 tool_use"]
    assert _brief(encoder.feed(ArgumentsPiece(0, "{}"))) == ["delta 1 {}"]
    assert encoder.feed(Finished("tool_calls")) == b""
    assert _brief(encoder.feed(Final(Usage(3, 2)))) == ["stop 1", "message_delta", "message_stop"]


def test_the_last_block_stays_open_until_the_reply_is_stored() -> None:
    stream = _feed(Encoder(envelope()), Begin(3), TextPiece("a"), Finished("stop"))
    assert _brief(stream) == ["message_start", "start 0 text", "delta 0 a"]


def test_an_empty_reply() -> None:
    assert _brief(_feed(Encoder(envelope()), Begin(3), Finished("stop"), Final(None))) == [
        "message_start",
        "message_delta",
        "message_stop",
    ]


def test_a_stream_without_a_begin_begins_by_itself() -> None:
    assert _brief(_feed(Encoder(envelope()), TextPiece("a"), Begin(3)))[0] == "message_start"
    assert _brief(_feed(Encoder(envelope()), Final(None)))[0] == "message_start"


def test_no_call_ends_before_the_reply_does() -> None:
    encoder = Encoder(envelope())
    opening = (ToolBegin(0, "i", "f"), ArgumentsPiece(0, "{}"))
    assert _brief(_feed(encoder, Begin(3), *opening)) == ["message_start", "start 0 tool_use", "delta 0 {}"]
    assert (
        _feed(encoder, TextPiece("x"), ToolBegin(1, "j", "g"), ArgumentsPiece(1, "{}"), Finished("tool_calls")) == b""
    )
    assert _brief(encoder.feed(Final(Usage(1, 1))))[:3] == ["stop 0", "start 1 text", "delta 1 x"]


def test_parallel_calls_whose_arguments_interleave() -> None:
    encoder = Encoder(envelope())
    pieces: list[Piece] = [
        ToolBegin(0, "i", "f"),
        ToolBegin(1, "j", "g"),
        ArgumentsPiece(0, '{"a"'),
        ArgumentsPiece(1, '{"b":'),
        ArgumentsPiece(0, ":1}"),
        ArgumentsPiece(1, "2}"),
        Finished("tool_calls"),
        Final(Usage(1, 1)),
    ]
    assert _brief(_feed(encoder, *pieces))[1:-2] == [
        *("start 0 tool_use", 'delta 0 {"a"', "delta 0 :1}", "stop 0"),
        *("start 1 tool_use", 'delta 1 {"b":2}', "stop 1"),
    ]
    assert encoder.losses == []


def test_what_waits_behind_a_call_that_never_completes_leaves_at_the_end() -> None:
    encoder = Encoder(envelope())
    stream = _feed(
        encoder,
        ToolBegin(0, "i", "f"),
        ArgumentsPiece(0, '{"a'),
        ToolBegin(1, "j", "g"),
        ArgumentsPiece(1, "{}"),
        TextPiece("x"),
        TextPiece("y"),
        Finished("length"),
    )
    assert _brief(stream) == ["message_start", "start 0 tool_use", 'delta 0 {"a']
    assert _brief(encoder.feed(Final(Usage(1, 1)))) == [
        "stop 0",
        "start 1 tool_use",
        "delta 1 {}",
        "stop 1",
        "start 2 text",
        "delta 2 xy",
        "stop 2",
        "message_delta",
        "message_stop",
    ]
    assert [loss.where for loss in encoder.losses] == ["content[0].input"]


def test_other_choices_are_reported_once() -> None:
    encoder = Encoder(envelope())
    assert _feed(encoder, TextPiece("b", 1), TextPiece("c", 1), Finished("stop", index=1)) == b""
    assert [loss.where for loss in encoder.losses] == ["choices[1]"]


def test_without_counts_at_the_end_those_of_the_beginning_stand() -> None:
    encoder = Encoder(envelope())
    *_, delta, _ = _events(_feed(encoder, Begin(9, 4), TextPiece("a"), Finished("abort"), Final(None)))
    assert delta["usage"]["input_tokens"] == 5
    assert delta["delta"]["stop_reason"] == "max_tokens"
    assert [loss.where for loss in encoder.losses] == ["usage", "stop_reason"]


def test_a_stop_string_is_told() -> None:
    *_, delta, _ = _events(_feed(Encoder(envelope()), Finished("stop_sequence", "END"), Final(None)))
    assert delta["delta"] == {"stop_reason": "stop_sequence", "stop_sequence": "END"}


def test_errors_in_a_stream() -> None:
    stream = Encoder(envelope()).error(503, "the engine is away")
    assert _events(stream) == [
        {"type": "error", "error": {"type": "overloaded_error", "message": "the engine is away"}}
    ]
    with pytest.raises(BadReply, match="the engine is away"):
        decode_stream([stream])


def _stream(*events: dict[str, Any]) -> list[bytes]:
    return [b"event: x\ndata: %b\n\n" % msgspec.json.encode(event) for event in events]


def _block(start: dict[str, Any], *deltas: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"type": "content_block_start", "index": 0, "content_block": start},
        *({"type": "content_block_delta", "index": 0, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": 0},
    ]


def test_a_stream_of_the_real_api_is_read() -> None:
    usage = {"input_tokens": 1, "cache_creation_input_tokens": 2, "cache_read_input_tokens": 3, "output_tokens": 1}
    stream = _stream(
        {"type": "message_start", "message": {"usage": usage | {"service_tier": "standard"}}},
        {"type": "ping"},
        *_block({"type": "thinking", "thinking": ""}, {"type": "signature_delta", "signature": seal("hidden")}),
        *_block({"type": "text", "text": "a"}, {"type": "text_delta", "text": "b"}, {"type": "citations_delta"}),
        *_block(
            {"type": "tool_use", "id": "i", "name": "f", "input": {}}, {"type": "input_json_delta", "partial_json": ""}
        ),
        *_block({"type": "tool_use", "id": "j", "name": "g", "input": {"a": 1}}),
        {"type": "something_new"},
        {
            "type": "message_delta",
            "delta": {"stop_reason": "tool_use", "stop_sequence": None},
            "usage": {"output_tokens": 9},
        },
        {"type": "message_stop"},
    )
    pieces = decode_stream([stream[0], KEEPALIVE or b"", *stream[1:]])
    assert pieces[0] == Begin(6, 3)
    assert pieces[-1] == Final(Usage(6, 9, 3))
    parts = (Thinking("hidden"), Text("ab"), ToolUse("i", "f", "{}"), ToolUse("j", "g", '{"a":1}'))
    assert fold(pieces).choices == (Choice(0, parts, "tool_calls"),)


@pytest.mark.parametrize("event", [b"data: x\n\n", b'data: {"a":1}\n\n', b'data: {"type":"\xff"}\n\n'])
def test_what_is_no_event_is_refused(event: bytes) -> None:
    with pytest.raises(BadReply, match="not an event"):
        decode_stream([event])
