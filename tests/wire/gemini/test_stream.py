from __future__ import annotations

from typing import Any

import msgspec
import pytest

from polarproxy.errors import BadReply
from polarproxy.model import Usage
from polarproxy.wire.gemini.errors import KEEPALIVE
from polarproxy.wire.gemini.signature import sign
from polarproxy.wire.gemini.stream import Encoder, decode_stream
from polarproxy.wire.neutral.reply import (
    ArgumentsPiece,
    Begin,
    Final,
    Finished,
    Piece,
    TextPiece,
    ThinkingPiece,
    ToolBegin,
)
from polarproxy.wire.neutral.request import Tool
from polarproxy.wire.sse import EventSplitter
from tests.wire.gemini.streams import asked, chunks

AROUND: dict[str, Any] = {"modelVersion": "asked-model", "responseId": "0123456789abcdef0123456789abcdef"}
PROMPT: dict[str, Any] = {"promptTokenCount": 9, "totalTokenCount": 9}
TURN: list[Piece] = [
    Begin(9),
    ThinkingPiece("I "),
    ThinkingPiece("look."),
    TextPiece("Ok"),
    TextPiece("."),
    ToolBegin(0, "x", "run"),
    ArgumentsPiece(0, '{"a":'),
    ArgumentsPiece(0, " 1}"),
    ToolBegin(1, "y", "run"),
    Finished("tool_calls"),
    Final(Usage(9, 20, cached_tokens=4, reasoning_tokens=5)),
]


def chunk(*said: dict[str, Any], index: int = 0, **members: Any) -> dict[str, Any]:
    return {
        "candidates": [{"content": {"parts": list(said), "role": "model"}, "index": index}],
        "usageMetadata": PROMPT,
        **AROUND,
    } | members


LAST = {
    "candidates": [{"content": {"parts": [{"text": ""}], "role": "model"}, "finishReason": "STOP", "index": 0}],
    "usageMetadata": {
        "promptTokenCount": 9,
        "candidatesTokenCount": 15,
        "totalTokenCount": 29,
        "cachedContentTokenCount": 4,
        "thoughtsTokenCount": 5,
    },
    **AROUND,
}


def test_a_turn_as_a_client_that_asked_for_thoughts_sees_it() -> None:
    assert chunks(TURN, asked(shown=True)) == [
        chunk({"text": "I ", "thought": True}),
        chunk({"text": "look.", "thought": True}),
        chunk({"text": "Ok", "thoughtSignature": sign("I look.")}),
        chunk({"text": "."}),
        chunk({"functionCall": {"id": "x", "name": "run", "args": {"a": 1}}}),
        chunk({"functionCall": {"id": "y", "name": "run", "args": {}}}),
        LAST,
    ]


def test_a_turn_as_any_other_client_sees_it() -> None:
    assert chunks(TURN, asked(shown=False)) == chunks(TURN, asked(shown=True))[2:]


def test_text_leaves_at_once_and_calls_leave_with_the_end() -> None:
    encoder = Encoder(asked(shown=True))
    told = [len(EventSplitter().feed(encoder.feed(piece))) for piece in TURN]
    assert told == [0, 1, 1, 1, 1, 0, 0, 0, 0, 0, 3]


def test_what_comes_after_a_call_waits_and_arguments_that_interleave_stay_apart() -> None:
    pieces: list[Piece] = [
        Begin(9, 4),
        ToolBegin(0, "x", "run"),
        ToolBegin(1, "y", "run"),
        ArgumentsPiece(1, '{"b":'),
        ArgumentsPiece(0, '{"a":1}'),
        TextPiece("So"),
        ArgumentsPiece(1, "2}"),
        TextPiece("."),
        Finished("tool_calls"),
        Final(None),
    ]
    around = asked(shown=True)
    encoder = Encoder(around)
    assert not any(encoder.feed(piece) for piece in pieces[:-1])
    assert [one["candidates"][0]["content"]["parts"][0] for one in chunks(pieces, around)] == [
        {"functionCall": {"id": "x", "name": "run", "args": {"a": 1}}},
        {"functionCall": {"id": "y", "name": "run", "args": {"b": 2}}},
        {"text": "So."},
        {"text": ""},
    ]


def test_a_call_without_text_carries_the_signature_and_the_clients_name() -> None:
    tools = (Tool("a_b", own_name="a.b"),)
    pieces: list[Piece] = [Begin(), ThinkingPiece("hm"), ToolBegin(0, "x", "a_b"), Finished("tool_calls"), Final(None)]
    called = chunks(pieces, asked(shown=False, tools=tools))[0]["candidates"][0]["content"]["parts"]
    assert called == [{"functionCall": {"id": "x", "name": "a.b", "args": {}}, "thoughtSignature": sign("hm")}]


def test_a_hidden_thought_at_the_end_is_signed_on_the_last_chunk() -> None:
    pieces: list[Piece] = [Begin(), ThinkingPiece("hm"), Finished("length"), Final(None)]
    (last,) = chunks(pieces, asked(shown=False))
    assert last == {
        "candidates": [
            {
                "content": {"parts": [{"text": "", "thoughtSignature": sign("hm")}], "role": "model"},
                "finishReason": "MAX_TOKENS",
                "index": 0,
            }
        ],
        **AROUND,
    }


def test_choices_are_candidates_and_one_that_never_ended_ends_with_other() -> None:
    pieces: list[Piece] = [Begin(9), TextPiece("a", 1), TextPiece("b"), Finished("stop", index=1), Final(None)]
    found = chunks(pieces, asked(shown=True))
    assert found[:2] == [chunk({"text": "a"}, index=1), chunk({"text": "b"})]
    assert [(one["index"], one["finishReason"]) for one in found[2]["candidates"]] == [(0, "OTHER"), (1, "STOP")]


def test_an_event_is_one_line_with_the_ends_of_the_real_api() -> None:
    encoder = Encoder(asked(shown=True))
    encoder.feed(ToolBegin(0, "x", "run"))
    encoder.feed(ArgumentsPiece(0, '{\r\n"a":"\u2028"\n}'))
    encoder.feed(Finished("tool_calls"))
    event, _ = EventSplitter().feed(encoder.feed(Final(None)))
    assert event.startswith(b"data: {")
    assert event.endswith(b"}\r\n\r\n")
    assert event.count(b"\n") == 2
    assert b'"args":{  "a":"\\u2028" }' in event


def test_what_a_stop_sequence_was_and_malformed_arguments_are_told_as_losses() -> None:
    encoder = Encoder(asked(shown=True))
    pieces: list[Piece] = [
        ToolBegin(0, "x", "run"),
        ArgumentsPiece(0, '{"a'),
        Finished("stop_sequence", "END"),
        Final(None),
    ]
    for piece in pieces:
        encoder.feed(piece)
    assert [loss.where for loss in encoder.losses] == [
        "candidates[0].functionCall",
        "candidates[0].finishReason",
    ]


def test_the_array_is_one_json_text() -> None:
    encoder = Encoder(asked(shown=True), array=True)
    told = [encoder.feed(piece) for piece in TURN]
    assert told[1].startswith(b"[{")
    assert told[2].startswith(b"\n,\r\n{")
    assert msgspec.json.decode(b"".join(told)) == chunks(TURN, asked(shown=True))


def test_a_failure_is_an_error_outside_of_the_events() -> None:
    encoder = Encoder(asked(shown=True))
    encoder.feed(TURN[1])
    error = encoder.error(503, "the engine went away")
    assert error == (b'{"error":{"code":503,"message":"the engine went away","status":"UNAVAILABLE"}}\r\n\r\n')
    with pytest.raises(BadReply, match="the engine went away"):
        decode_stream([error])
    with pytest.raises(BadReply, match="the engine went away"):
        decode_stream([b"data: " + error])


@pytest.mark.parametrize("before", [[], TURN[:2]])
def test_a_failure_is_the_last_element_of_the_array(before: list[Piece]) -> None:
    encoder = Encoder(asked(shown=True), array=True)
    told = b"".join(encoder.feed(piece) for piece in before) + encoder.error(500, "failed")
    assert msgspec.json.decode(told)[-1] == {"error": {"code": 500, "message": "failed", "status": "INTERNAL"}}


def test_nothing_fills_a_silence() -> None:
    assert KEEPALIVE is None


def test_a_stream_that_stops_before_the_end_is_not_a_reply() -> None:
    encoder = Encoder(asked(shown=True))
    with pytest.raises(BadReply, match="stopped before the reply was over"):
        decode_stream([encoder.feed(piece) for piece in TURN[1:3]])


def test_what_is_no_chunk_is_refused() -> None:
    with pytest.raises(BadReply, match="not a chunk of the Gemini API"):
        decode_stream([b"data: [1]\n\n"])
