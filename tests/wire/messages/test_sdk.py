"""The anthropic SDK as judge: it is fed our bytes and parses them, and we read the bytes that it sends.

A transport that answers from memory stands where its connection would be; everything above is the SDK's own code.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anthropic
import httpx2
import pytest
from anthropic.types import Message, ToolUseBlock
from hypothesis import given, settings
from hypothesis import strategies as st

from polarproxy.model import Usage
from polarproxy.wire.messages.count import encode_count
from polarproxy.wire.messages.errors import KEEPALIVE, client_status, encode_error
from polarproxy.wire.messages.models import encode_model, encode_models
from polarproxy.wire.messages.reply import encode_reply
from polarproxy.wire.messages.request import decode_request
from polarproxy.wire.messages.stream import Encoder
from polarproxy.wire.neutral import reply as neutral
from polarproxy.wire.neutral.reply import Begin, Choice, Finished, Piece, Reply, TextPiece
from polarproxy.wire.neutral.request import (
    OutputFormat,
    Reasoning,
    Text,
    Thinking,
    Tool,
    ToolChoice,
    ToolResult,
    ToolUse,
)
from tests.wire.neutral.strategies import cut_pieces, envelope, replies

if TYPE_CHECKING:
    from collections.abc import Callable

_JSON = "application/json"
_SSE = "text/event-stream"
_ASK: dict[str, Any] = {"model": "m", "max_tokens": 10, "messages": [{"role": "user", "content": "hi"}]}
_REPLY = Reply(
    (
        Choice(
            0,
            (
                Thinking("Let me see."),
                Text("Looking. 🙂"),
                ToolUse("call_1", "read", '{"path": "a", "n": 1.0}'),
                ToolUse("call_2", "run", "{}"),
            ),
            "tool_calls",
        ),
    ),
    Usage(100, 20, 64, 5),
)


def _client(answer: Callable[[httpx2.Request], httpx2.Response]) -> anthropic.Anthropic:
    http = httpx2.Client(transport=httpx2.MockTransport(answer))
    return anthropic.Anthropic(api_key="k", base_url="http://proxy.invalid", http_client=http, max_retries=0)


def _answering(body: bytes, kind: str = _JSON, status: int = 200) -> anthropic.Anthropic:
    return _client(lambda _: httpx2.Response(status, content=body, headers={"content-type": kind}))


def _streamed(pieces: list[Piece]) -> bytes:
    encoder = Encoder(envelope())
    return b"".join(encoder.feed(piece) for piece in pieces)


def _final(stream: bytes) -> Message:
    with _answering(stream, _SSE).messages.stream(**_ASK) as messages:
        return Message.model_validate(messages.get_final_message().to_dict())


def test_a_whole_reply_is_the_message_of_the_sdk() -> None:
    body = encode_reply(_REPLY, envelope()).body
    message = _answering(body).messages.create(**_ASK)
    assert message == Message.model_validate_json(body, strict=True)
    assert message.id == "msg_0123456789abcdef0123456789abcdef"
    assert message.model == "asked-model"
    assert [block.type for block in message.content] == ["thinking", "text", "tool_use", "tool_use"]
    call = message.content[2]
    assert isinstance(call, ToolUseBlock)
    assert call.input == {"path": "a", "n": 1.0}
    assert message.usage.output_tokens_details is not None
    assert (message.usage.input_tokens, message.usage.cache_read_input_tokens) == (36, 64)


def test_a_stream_accumulates_into_the_same_message() -> None:
    stream = _streamed(list(neutral.pieces(_REPLY)))
    first, rest = stream.split(b"\n\n", 1)
    assert _final(first + b"\n\n" + (KEEPALIVE or b"") + rest) == Message.model_validate_json(
        encode_reply(_REPLY, envelope()).body
    )


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_every_stream_accumulates_into_the_message_of_its_whole_reply(data: st.DataObject) -> None:
    reply = data.draw(replies(several_choices=False, usage="always", arguments="object"))
    stream = _streamed(data.draw(cut_pieces(reply)))
    assert _final(stream) == Message.model_validate_json(encode_reply(reply, envelope()).body, strict=True)


def test_a_cut_call_has_the_members_that_came_whole() -> None:
    reply = Reply((Choice(0, (ToolUse("c", "write", '{"path": "a", "text": "onc'),), "length"),), Usage(1, 1, 0))
    message = _final(_streamed(list(neutral.pieces(reply))))
    call = message.content[0]
    assert isinstance(call, ToolUseBlock)
    assert call.input == {"path": "a"}
    assert message.stop_reason == "max_tokens"


def test_events_of_the_raw_stream_have_the_types_of_the_sdk() -> None:
    stream = _streamed(list(neutral.pieces(_REPLY)))
    events = list(_answering(stream, _SSE).messages.create(**_ASK, stream=True))
    for event in events:
        assert type(event).model_validate(event.to_dict(), strict=True) == event
    assert events[0].type == "message_start"
    assert events[-1].type == "message_stop"


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (400, anthropic.BadRequestError),
        (401, anthropic.AuthenticationError),
        (403, anthropic.PermissionDeniedError),
        (404, anthropic.NotFoundError),
        (409, anthropic.ConflictError),
        (413, anthropic.APIStatusError),
        (429, anthropic.RateLimitError),
        (500, anthropic.InternalServerError),
        (503, anthropic.InternalServerError),
    ],
)
def test_errors_are_the_exceptions_of_the_sdk(status: int, error: type[anthropic.APIStatusError]) -> None:
    body = encode_error(status, "word for word")
    with pytest.raises(error, match="word for word") as caught:
        _answering(body, status=client_status(status)).messages.create(**_ASK)
    assert caught.value.status_code == (529 if status == 503 else status)


def test_an_error_in_a_stream_is_raised() -> None:
    encoder = Encoder(envelope())
    stream = encoder.feed(Begin(3)) + encoder.feed(TextPiece("par")) + encoder.error(500, "the engine went away")
    with pytest.raises(anthropic.APIStatusError, match="the engine went away"):
        _final(stream)


def test_a_refusal_and_a_stop_sequence() -> None:
    for ended in (Finished("content_filter"), Finished("stop_sequence", "END")):
        message = _final(_streamed([Begin(3), TextPiece("a"), ended, neutral.Final(Usage(3, 1, 0))]))
        assert (message.stop_reason, message.stop_sequence) in (("refusal", None), ("stop_sequence", "END"))


def test_counts_and_models() -> None:
    assert _answering(encode_count(17)).messages.count_tokens(model="m", messages=_ASK["messages"]).input_tokens == 17
    assert _answering(encode_model("a")).models.retrieve("a").id == "a"

    def page(request: httpx2.Request) -> httpx2.Response:
        body = encode_models(["a", "b", "c"], 2, after_id=request.url.params.get("after_id"))
        return httpx2.Response(200, content=body, headers={"content-type": _JSON})

    assert [model.id for model in _client(page).models.list(limit=2)] == ["a", "b", "c"]


def test_what_the_sdk_sends_is_read() -> None:
    sent: list[bytes] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        sent.append(request.content)
        body = encode_reply(_REPLY, envelope()).body
        return httpx2.Response(200, content=body, headers={"content-type": _JSON})

    client = _client(answer)
    first = client.messages.create(**_ASK)
    client.messages.create(
        model="m",
        max_tokens=4096,
        system=[{"type": "text", "text": "You help.", "cache_control": {"type": "ephemeral"}}],
        messages=[
            {"role": "user", "content": "hi"},
            # As every client of the SDK does it: the blocks of the reply go back as they were parsed.
            {"role": "assistant", "content": first.content},
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "call_1", "content": "no file", "is_error": True},
                    {"type": "tool_result", "tool_use_id": "call_2", "content": [{"type": "text", "text": "ok"}]},
                ],
            },
        ],
        tools=[{"name": "read", "description": "Reads.", "input_schema": {"type": "object"}}],
        tool_choice={"type": "any", "disable_parallel_tool_use": True},
        thinking={"type": "enabled", "budget_tokens": 2048},
        output_config={"effort": "low", "format": {"type": "json_schema", "schema": {"type": "object"}}},
        stop_sequences=["END"],
        metadata={"user_id": "u"},
    )
    decoded = decode_request(sent[1])
    assert decoded.losses == ()
    request = decoded.request
    assert [message.role for message in request.messages] == ["system", "user", "assistant", "tool"]
    said = request.messages[2].parts
    assert said[0] == Thinking("Let me see.")
    assert [part.id for part in said if isinstance(part, ToolUse)] == ["call_1", "call_2"]
    assert request.messages[3].parts == (
        ToolResult("call_1", (Text("no file"),), is_error=True),
        ToolResult("call_2", (Text("ok"),)),
    )
    assert request.tools == (Tool("read", "Reads.", b'{"type":"object"}'),)
    assert (request.tool_choice, request.parallel_tool_calls) == (ToolChoice("required"), False)
    assert request.reasoning == Reasoning(True, "low", 2048)
    assert request.output == OutputFormat(b'{"type":"object"}')
    assert (request.stop, request.user) == (("END",), "u")
