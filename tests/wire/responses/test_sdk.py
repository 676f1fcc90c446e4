"""The openai SDK as judge: its own types read what we send, and its accumulator makes the same response of a stream."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, get_args

import pytest
from openai._streaming import SSEDecoder
from openai._types import omit
from openai.lib.streaming.responses._responses import ResponseStreamState
from openai.types.responses import Response, ResponseItemList, ResponsesServerEvent, ResponseStreamEvent
from pydantic import TypeAdapter

from polarproxy.model import Usage
from polarproxy.wire.neutral.reply import (
    ArgumentsPiece,
    Begin,
    Choice,
    Final,
    Finish,
    Finished,
    Piece,
    Reply,
    TextPiece,
    ThinkingPiece,
    ToolBegin,
    fold,
    pieces,
)
from polarproxy.wire.neutral.request import Text, Thinking, ToolUse
from polarproxy.wire.responses.items import input_items, item_list
from polarproxy.wire.responses.reply import encode_reply
from polarproxy.wire.responses.socket import prewarmed
from polarproxy.wire.responses.stream import Encoder
from tests.wire.responses.bodies import AGENTS, ID, PATCH, RUN, SEARCH, SHELL, codex, envelope, request, text

if TYPE_CHECKING:
    from polarproxy.wire.neutral.reply import Envelope

_response = TypeAdapter(Response)
_EVENTS: dict[str, Any] = {
    get_args(kind.model_fields["type"].annotation)[0]: kind for kind in get_args(get_args(ResponseStreamEvent)[0])
}
BODY = json.dumps(codex() | {"tools": [RUN, AGENTS, PATCH, SHELL, SEARCH], "instructions": "be kind"}).encode()
PARTS = (
    Thinking("why"),
    Text("so 🙂"),
    ToolUse("c0", "run", '{"cmd": "ls"}'),
    ToolUse("c1", "agents__spawn", ""),
    ToolUse("c2", "patch", '{"input":"x"}'),
    ToolUse("c3", "local_shell", '{"command":["ls"]}'),
    ToolUse("c4", "local_shell", "nonsense"),
)


def strictly(body: bytes) -> Response:
    """The response, with every value of its declared type and none left unread but `store`, which the SDK lacks."""
    response = _response.validate_json(body, strict=True)
    response.model_dump(warnings="error")
    assert set(response.model_extra or {}) == {"store"}
    return response


def accumulated(data: bytes) -> list[Any]:
    """The events as the SDK's stream helper gives them, each validated on the way."""
    state: ResponseStreamState[Any] = ResponseStreamState(input_tools=omit, text_format=omit)
    out = []
    for event in SSEDecoder().iter_bytes(iter([data])):
        said = json.loads(event.data)
        assert event.event == said["type"]
        kind = _EVENTS[said["type"]]
        read = kind.model_validate_json(event.data, strict=True)
        assert not set(read.model_extra or {}) - {"name"}
        out += state.handle_event(read)
    return out


def plain(response: Any) -> dict[str, Any]:
    """A response without what the accumulator adds: values parsed for a caller who gave types."""
    said: dict[str, Any] = response.to_dict()
    for item in said["output"]:
        item.pop("parsed_arguments", None)
        for part in item.get("content") or ():
            part.pop("parsed", None)
    return said


def told(reply: Reply, around: Envelope) -> bytes:
    encoder = Encoder(around)
    return b"".join(encoder.feed(piece) for piece in pieces(reply))


@pytest.mark.parametrize("finish", ["tool_calls", "length", "abort", "content_filter"])
@pytest.mark.parametrize("body", [BODY, request()])
def test_a_whole_reply(body: bytes, finish: Finish) -> None:
    reply = Reply((Choice(0, PARTS, finish),), Usage(10, 5, 4, 2))
    response = strictly(encode_reply(reply, envelope(body)).body)
    assert response.output_text == "so 🙂"
    assert response.usage is not None
    assert response.usage.total_tokens == 15
    assert set(Response.model_fields) <= set(json.loads(encode_reply(reply, envelope(body)).body))


@pytest.mark.parametrize("body", [BODY, request()])
def test_a_stream(body: bytes) -> None:
    reply = Reply((Choice(0, PARTS, "tool_calls"),), Usage(10, 5))
    events = accumulated(told(reply, envelope(body)))
    whole = _response.validate_json(encode_reply(reply, envelope(body)).body)
    assert plain(events[-1].response) == plain(whole)
    snapshots = [event.snapshot for event in events if event.type == "response.function_call_arguments.delta"]
    assert '{"cmd": "ls"}' in snapshots


@pytest.mark.parametrize(("finish", "end"), [("length", "response.incomplete"), ("abort", "response.failed")])
def test_a_stream_that_ends_early(finish: Finish, end: str) -> None:
    reply = Reply((Choice(0, (Text("a"),), finish),))
    events = accumulated(told(reply, envelope(BODY)))
    assert (events[-1].type, events[-1].response.output_text) == (end, "a")


def test_calls_side_by_side() -> None:
    said: list[Piece] = [
        Begin(3),
        ThinkingPiece("t"),
        ToolBegin(0, "c0", "run"),
        ToolBegin(1, "c1", "patch"),
        ArgumentsPiece(1, '{"input":"a'),
        ArgumentsPiece(0, "{}"),
        TextPiece("x"),
        ArgumentsPiece(1, 'b"}'),
        Finished("tool_calls"),
        Final(None),
    ]
    encoder = Encoder(envelope(BODY))
    events = accumulated(b"".join(encoder.feed(piece) for piece in said))
    whole = _response.validate_json(encode_reply(fold(said), envelope(BODY)).body)
    assert plain(events[-1].response) == plain(whole)


def test_a_stream_that_fails() -> None:
    encoder = Encoder(envelope(BODY))
    data = encoder.feed(TextPiece("a")) + encoder.error(500, "the engine died")
    last = accumulated(data)[-1]
    assert (last.type, last.response.error.message) == ("response.failed", "the engine died")


def test_frames() -> None:
    server = TypeAdapter[Any](ResponsesServerEvent)
    for frame in prewarmed(envelope(BODY), "lane"):
        event = server.validate_json(frame)
        assert (event.response.output, event.stream_id) == ([], "lane")


def test_a_list_of_items() -> None:
    body = request(
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "ho"},
        text("developer", "x"),
        {"type": "function_call", "call_id": "c", "name": "run", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "done"},
        {"type": "custom_tool_call", "call_id": "d", "name": "patch", "input": "x"},
        {"type": "custom_tool_call_output", "call_id": "d", "output": "done"},
        {"type": "reasoning", "summary": []},
    )
    page = TypeAdapter(ResponseItemList).validate_json(item_list(input_items(body, ID), order="asc"))
    assert [item.id for item in page.data if item.id] == [
        f"{prefix}_{ID}i{place:02x}"
        for place, prefix in enumerate(("msg", "msg", "msg", "fc", "fco", "ctc", "ctco", "rs"))
    ]
