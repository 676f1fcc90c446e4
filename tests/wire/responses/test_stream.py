"""Replies as events."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from polarproxy.errors import BadReply
from polarproxy.model import Usage
from polarproxy.wire.neutral.reply import (
    ArgumentsPiece,
    Begin,
    Choice,
    Final,
    Finished,
    Piece,
    Reply,
    TextPiece,
    ThinkingPiece,
    ToolBegin,
    fold,
)
from polarproxy.wire.neutral.request import Text, Thinking, ToolUse
from polarproxy.wire.neutral.seal import seal
from polarproxy.wire.responses.stream import Encoder, decode_stream
from polarproxy.wire.sse import EventSplitter, event_data
from tests.wire.responses.bodies import AGENTS, ID, PATCH, RUN, SHELL, envelope, places, request

if TYPE_CHECKING:
    from polarproxy.wire.neutral.encoder import StreamEncoder

BODY = request({"role": "user", "content": "hi"}, tools=[RUN, AGENTS, PATCH, SHELL])


def events(data: bytes) -> list[dict[str, Any]]:
    """The events, each with a line that names it."""
    read = []
    for raw in EventSplitter().feed(data):
        name, line = raw.decode().splitlines()[:2]
        said = json.loads(event_data(raw) or b"")
        assert name == f"event: {said['type']}"
        assert line.startswith("data: ")
        read.append(said)
    return read


def streamed(*pieces: Piece) -> list[dict[str, Any]]:
    encoder = Encoder(envelope(BODY))
    return events(b"".join(encoder.feed(piece) for piece in pieces))


def told(said: list[dict[str, Any]]) -> list[str]:
    return [event["type"].removeprefix("response.") for event in said]


def test_thinking_then_text_then_a_call() -> None:
    said = streamed(
        Begin(7),
        ThinkingPiece("wh"),
        ThinkingPiece("y"),
        TextPiece("so"),
        ToolBegin(0, "c0", "agents__spawn"),
        ArgumentsPiece(0, '{"cmd"'),
        ArgumentsPiece(0, ': "ls"}'),
        Finished("tool_calls"),
        Final(Usage(7, 5)),
    )
    assert told(said) == [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        "reasoning_text.delta",
        "reasoning_text.delta",
        "reasoning_text.done",
        "content_part.done",
        "output_item.done",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
        "completed",
    ]
    assert [event["sequence_number"] for event in said] == list(range(len(said)))
    assert [event["output_index"] for event in said[2:-1]] == [0] * 7 + [1] * 6 + [2] * 5
    assert (said[0]["response"]["status"], said[0]["response"]["output"]) == ("in_progress", [])
    assert said[2]["item"]["encrypted_content"] is None
    assert said[8]["item"]["encrypted_content"] == seal("why")
    added, done = said[15]["item"], said[19]["item"]
    assert (added["arguments"], added["status"], added["namespace"]) == ("", "in_progress", "agents")
    assert done == added | {"arguments": '{"cmd": "ls"}', "status": "completed"}
    assert {event["item_id"] for event in said[16:19]} == {f"fc_{ID}02"}
    final = said[-1]["response"]
    assert final["output"] == [said[8]["item"], said[14]["item"], done]
    assert final["usage"]["input_tokens"] == 7


def test_the_first_piece_opens_the_response() -> None:
    encoder = Encoder(envelope(BODY))
    assert told(events(encoder.feed(Begin()))) == ["created", "in_progress"]
    assert told(events(encoder.feed(TextPiece("a")))) == [
        "output_item.added",
        "content_part.added",
        "output_text.delta",
    ]
    assert told(events(encoder.feed(TextPiece("b")))) == ["output_text.delta"]


def test_calls_side_by_side_keep_their_places_and_end_in_order() -> None:
    said = streamed(
        ToolBegin(0, "c0", "run"),
        ToolBegin(1, "c1", "run"),
        ArgumentsPiece(1, '{"b"'),
        ArgumentsPiece(0, '{"a"'),
        TextPiece("between"),
        ThinkingPiece("then"),
        ArgumentsPiece(1, ":1}"),
        ArgumentsPiece(0, ":0}"),
        Finished("tool_calls"),
        Final(None),
    )
    done = [event for event in said if event["type"] == "response.output_item.done"]
    assert [event["output_index"] for event in done] == [0, 1, 2, 3]
    assert [event["item"].get("arguments") for event in done] == ['{"a":0}', '{"b":1}', None, None]
    deltas = [event for event in said if event["type"] == "response.function_call_arguments.delta"]
    assert [(event["output_index"], event["delta"]) for event in deltas] == [
        (1, '{"b"'),
        (0, '{"a"'),
        (1, ":1}"),
        (0, ":0}"),
    ]


def test_the_input_of_a_freeform_tool_is_streamed_bare() -> None:
    said = streamed(
        ToolBegin(0, "c0", "patch"),
        ArgumentsPiece(0, '{"inp'),
        ArgumentsPiece(0, 'ut": "a\\'),
        ArgumentsPiece(0, 'nb"}'),
        Finished("tool_calls"),
        Final(None),
    )
    assert told(said)[2:] == [
        "output_item.added",
        "custom_tool_call_input.delta",
        "custom_tool_call_input.delta",
        "custom_tool_call_input.done",
        "output_item.done",
        "completed",
    ]
    assert [event["delta"] for event in said[3:5]] == ["a", "\nb"]
    assert (said[5]["input"], said[6]["item"]["input"]) == ("a\nb", "a\nb")


def test_the_local_shell_is_told_at_its_end() -> None:
    said = streamed(
        ToolBegin(0, "c0", "local_shell"), ArgumentsPiece(0, '{"command":["ls"]}'), Finished("tool_calls"), Final(None)
    )
    assert told(said)[2:] == ["output_item.added", "output_item.done", "completed"]
    assert said[2]["item"]["action"] == {"type": "exec", "command": [], "env": {}}
    assert said[3]["item"]["action"]["command"] == ["ls"]


def test_a_reply_that_was_cut_ends_incomplete() -> None:
    said = streamed(TextPiece("a"), Finished("length"), Final(Usage(1, 1)))
    assert told(said)[-2:] == ["output_item.done", "incomplete"]
    assert said[-1]["response"]["incomplete_details"] == {"reason": "max_output_tokens"}
    assert said[-2]["item"]["status"] == "incomplete"


def test_an_answer_that_never_ended_failed() -> None:
    said = streamed(TextPiece("a"), Final(None))
    assert told(said)[-2:] == ["output_item.done", "failed"]
    assert said[-1]["response"]["error"]["code"] == "server_error"


@pytest.mark.parametrize(
    ("status", "message", "code"),
    [
        (500, "the engine died", "server_error"),
        (502, "This model's maximum context length is 8 tokens.", "context_length_exceeded"),
        (429, "slow down", "rate_limit_exceeded"),
        (418, "odd", "server_error"),
    ],
)
def test_an_error_in_the_middle(status: int, message: str, code: str) -> None:
    encoder: StreamEncoder = Encoder(envelope(BODY))
    encoder.feed(ThinkingPiece("t"))
    before = events(encoder.feed(TextPiece("a")))
    said = events(encoder.error(status, message))
    assert told(said) == ["failed"]
    assert said[0]["sequence_number"] == before[-1]["sequence_number"] + 1
    response = said[0]["response"]
    assert (response["status"], response["error"]) == ("failed", {"code": code, "message": message})
    assert [item["type"] for item in response["output"]] == ["reasoning"]


def test_an_error_before_everything_opens_the_response_first() -> None:
    assert told(events(Encoder(envelope()).error(500, "no"))) == ["created", "in_progress", "failed"]


def test_losses_are_told_as_they_come() -> None:
    encoder = Encoder(envelope(BODY))
    encoder.losses = []
    for piece in (
        ToolBegin(0, "c0", "patch"),
        ArgumentsPiece(0, "text"),
        TextPiece("other", 1),
        TextPiece("other", 1),
        Finished("stop", None, 1),
    ):
        encoder.feed(piece)
    assert places(encoder.losses) == ["choices[1]"]
    encoder.feed(Finished("stop_sequence", "END"))
    assert places(encoder.losses) == ["choices[1]", "status", "output[0].input"]


def sse(*said: dict[str, Any]) -> list[bytes]:
    return [b"data: " + json.dumps(event).encode() + b"\n\n" for event in said]


def test_the_stream_of_another_server_is_read() -> None:
    reasoning = {"type": "reasoning", "id": "rs", "summary": [{"type": "summary_text", "text": "short"}]}
    message = {"type": "message", "id": "m", "role": "assistant", "content": [{"type": "output_text", "text": "abc"}]}
    call = {"type": "function_call", "id": "f", "call_id": "c", "name": "run", "arguments": '{"a":1}'}
    pieces = decode_stream(
        [
            b": comment\n\n",
            *sse(
                {"type": "response.created", "response": {"status": "in_progress", "tools": [RUN]}},
                {"type": "response.queued"},
                {"type": "response.output_item.added", "output_index": 0, "item": reasoning | {"summary": []}},
                {"type": "response.reasoning_summary_text.delta", "output_index": 0, "delta": "short"},
                {"type": "response.output_item.done", "output_index": 0, "item": reasoning},
                {"type": "response.output_item.added", "output_index": 1, "item": message | {"content": []}},
                {"type": "response.output_text.delta", "output_index": 1, "delta": "ab"},
                {"type": "response.output_item.done", "output_index": 1, "item": message},
                {"type": "response.output_item.added", "output_index": 2, "item": call | {"arguments": ""}},
                {"type": "response.output_item.done", "output_index": 2, "item": call},
                {"type": "response.brand_new", "delta": {"x": 1}},
                {"type": "response.completed", "response": {"status": "completed", "output": [], "usage": None}},
                {"type": "response.completed", "response": {"status": "failed"}},
            ),
        ]
    )
    parts = (Thinking("short"), Text("abc"), ToolUse("c", "run", '{"a":1}'))
    assert fold(pieces) == Reply((Choice(0, parts, "tool_calls"),))


def test_a_stream_without_its_end_was_given_up() -> None:
    assert decode_stream([]) == [Finished("abort"), Final(None)]


@pytest.mark.parametrize(
    "event",
    [
        {"type": "response.output_text.delta", "output_index": 3, "delta": "x"},
        {"type": "response.function_call_arguments.delta", "output_index": 3, "delta": "x"},
        {"type": 5},
        {"type": "response.created", "response": 5},
    ],
)
def test_what_is_no_stream_is_refused(event: dict[str, Any]) -> None:
    with pytest.raises(BadReply):
        decode_stream(sse(event))
