"""Whole chat replies: read as vLLM writes them, written as the OpenAI SDK reads them."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from openai.types.chat import ChatCompletion

from polarproxy.errors import BadReply
from polarproxy.model import Usage
from polarproxy.wire.chat.reply import decode_reply, encode_reply
from polarproxy.wire.neutral.reply import Choice, Finish, Reply
from polarproxy.wire.neutral.request import Text, Thinking, ToolUse
from tests.wire.chat.strategies import CHAT_REPLIES, SDK_REPLIES
from tests.wire.neutral.strategies import envelope

RECORDED = Path(__file__).parents[2] / "fixtures" / "vllm"


def choice(message: dict[str, Any], **members: Any) -> Choice:
    body = {"choices": [{"index": 0, "finish_reason": "stop", "message": message, **members}]}
    return decode_reply(json.dumps(body).encode()).choices[0]


def recorded(name: str) -> Reply:
    body = json.loads((RECORDED / f"{name}.json").read_text(encoding="utf-8"))["whole"]["body"]
    return decode_reply(body.encode())


def written(reply: Reply) -> Any:
    return json.loads(encode_reply(reply, envelope()).body)


@given(CHAT_REPLIES)
def test_decoding_what_was_encoded_gives_the_reply_back(reply: Reply) -> None:
    encoded = encode_reply(reply, envelope())
    assert encoded.losses == ()
    assert decode_reply(encoded.body) == reply


@given(SDK_REPLIES)
def test_every_reply_is_one_to_the_sdk(reply: Reply) -> None:
    parsed = ChatCompletion.model_validate_json(encode_reply(reply, envelope()).body)
    for said, told in zip(reply.choices, parsed.choices, strict=True):
        assert "".join(part.text for part in said.parts if isinstance(part, Text)) == (told.message.content or "")
        uses = [part for part in said.parts if isinstance(part, ToolUse)]
        calls = [call.function for call in told.message.tool_calls or () if call.type == "function"]
        assert [(use.name, use.arguments) for use in uses] == [(call.name, call.arguments) for call in calls]
    if reply.usage is not None:
        assert parsed.usage is not None
        assert parsed.usage.total_tokens == reply.usage.prompt_tokens + reply.usage.completion_tokens


def test_a_reply_of_vllm_is_read() -> None:
    assert recorded("hi_stop") == Reply(
        (
            Choice(
                0,
                (Thinking("\nA greeting. I greet back.\n"), Text("\n\nHello! How can I ")),
                "stop_sequence",
                "help you",
            ),
        ),
        Usage(9, 18, cached_tokens=0, reasoning_tokens=8),
    )
    assert [type(part) for part in recorded("tools").choices[0].parts] == [Thinking, Text, ToolUse, ToolUse]
    assert [each.index for each in recorded("two").choices] == [0, 1]


@pytest.mark.parametrize(
    ("members", "finish", "stop"),
    [
        ({"finish_reason": "stop"}, "stop", None),
        ({"finish_reason": "stop", "stop_reason": 151645}, "stop", None),
        ({"finish_reason": "stop", "stop_reason": "END"}, "stop_sequence", "END"),
        ({"finish_reason": "length", "stop_reason": "END"}, "length", None),
        ({"finish_reason": "function_call"}, "tool_calls", None),
        ({"finish_reason": "content_filter"}, "content_filter", None),
        ({"finish_reason": "abort"}, "abort", None),
        ({"finish_reason": "repetition"}, "stop", None),
        ({"finish_reason": None}, "stop", None),
    ],
)
def test_the_end_of_a_choice_is_read(members: dict[str, Any], finish: Finish, stop: str | None) -> None:
    assert choice({"content": "x"}, **members) == Choice(0, (Text("x"),), finish, stop)


def test_a_call_that_was_forced_by_name_is_a_call() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    assert choice({"content": "", "tool_calls": [call]}) == Choice(0, (ToolUse("c", "f", "{}"),), "tool_calls")


@pytest.mark.parametrize("name", ["reasoning", "reasoning_content"])
def test_reasoning_has_two_names(name: str) -> None:
    assert choice({"content": None, name: "why"}).parts == (Thinking("why"),)


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"error":{}}', b'{"choices":[{}]}', b'{"choices":"\xff"}'])
def test_what_is_no_reply_is_refused(body: bytes) -> None:
    with pytest.raises(BadReply, match="not a chat completion"):
        decode_reply(body)


def test_what_was_sampled_in_another_order_is_a_loss() -> None:
    parts = (ToolUse("c", "f", "{}"), Text("a"), Thinking("b"), Text("c"))
    encoded = encode_reply(Reply((Choice(1, parts, "tool_calls"),)), envelope())
    assert [loss.where for loss in encoded.losses] == ["choices[1].message"]
    message = json.loads(encoded.body)["choices"][0]["message"]
    assert (message["content"], message["reasoning"]) == ("ac", "b")


def test_a_reply_is_written_in_the_envelope_and_as_vllm_would() -> None:
    parts = (Thinking("t"), ToolUse("c", "f", '{"a" : 1}'))
    reply = Reply((Choice(0, parts, "tool_calls"),), Usage(3, 4, cached_tokens=2, reasoning_tokens=1))
    assert written(reply) == {
        "id": "chatcmpl-0123456789abcdef0123456789abcdef",
        "object": "chat.completion",
        "created": 1_760_000_000,
        "model": "asked-model",
        "choices": [
            {
                "index": 0,
                "message": {
                    "role": "assistant",
                    "content": None,
                    "refusal": None,
                    "reasoning": "t",
                    "tool_calls": [
                        {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a" : 1}'}}
                    ],
                },
                "logprobs": None,
                "finish_reason": "tool_calls",
                "stop_reason": None,
            }
        ],
        "usage": {
            "prompt_tokens": 3,
            "completion_tokens": 4,
            "total_tokens": 7,
            "prompt_tokens_details": {"cached_tokens": 2},
            "completion_tokens_details": {"reasoning_tokens": 1},
        },
    }
