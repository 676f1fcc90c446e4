"""Whole replies, member by member."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, get_args

import msgspec
import pytest

from polarproxy.errors import BadReply
from polarproxy.model import Usage
from polarproxy.wire.bedrock.reply import decode_reply, encode_reply
from polarproxy.wire.neutral.reply import Choice, Finish, Reply
from polarproxy.wire.neutral.request import Text, Thinking, ToolUse
from polarproxy.wire.neutral.seal import seal
from tests.wire.neutral.strategies import envelope

USAGE = Usage(10, 5, 4)
REPLY = Reply((Choice(0, (Text("hi"),), "stop"),), USAGE)


def test_a_reply_in_full() -> None:
    parts = (Thinking("Hm."), Text("I call."), ToolUse("call_1", "read", '{"b": 1.0, "a": [1e3]}'))
    encoded = encode_reply(Reply((Choice(0, parts, "tool_calls"),), USAGE), replace(envelope(), elapsed_ms=lambda: 7))
    assert encoded.losses == ()
    assert b'"input":{"b": 1.0, "a": [1e3]}' in encoded.body
    assert json.loads(encoded.body) == {
        "output": {
            "message": {
                "role": "assistant",
                "content": [
                    {"reasoningContent": {"reasoningText": {"text": "Hm.", "signature": seal("Hm.")}}},
                    {"text": "I call."},
                    {"toolUse": {"toolUseId": "call_1", "name": "read", "input": {"b": 1.0, "a": [1000.0]}}},
                ],
            }
        },
        "stopReason": "tool_use",
        "usage": {"inputTokens": 6, "outputTokens": 5, "totalTokens": 15, "cacheReadInputTokens": 4},
        "metrics": {"latencyMs": 7},
    }


@pytest.mark.parametrize(
    ("finish", "reason"),
    [
        ("stop", "end_turn"),
        ("stop_sequence", "stop_sequence"),
        ("length", "max_tokens"),
        ("tool_calls", "tool_use"),
        ("content_filter", "content_filtered"),
        ("abort", "malformed_model_output"),
    ],
)
def test_why_it_ended(finish: Finish, reason: str) -> None:
    reply = Reply((Choice(0, (), finish),), USAGE)
    body = encode_reply(reply, envelope()).body
    assert json.loads(body)["stopReason"] == reason
    assert decode_reply(body) == reply


def test_every_end_has_a_reason() -> None:
    for finish in get_args(Finish):
        assert json.loads(encode_reply(Reply((Choice(0, (), finish),), USAGE), envelope()).body)["stopReason"]


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        ("guardrail_intervened", "content_filter"),
        ("malformed_tool_use", "abort"),
        ("model_context_window_exceeded", "length"),
    ],
)
def test_reasons_that_only_others_give(reason: str, finish: Finish) -> None:
    body = json.loads(encode_reply(REPLY, envelope()).body) | {"stopReason": reason}
    assert decode_reply(msgspec.json.encode(body)).choices[0].finish == finish


def test_a_stop_string_is_told_where_claude_tells_it() -> None:
    reply = Reply((Choice(0, (Text("a"),), "stop_sequence", "END"),), USAGE)
    body = encode_reply(reply, envelope()).body
    assert json.loads(body)["additionalModelResponseFields"] == {"stop_sequence": "END"}
    assert decode_reply(body) == reply


@pytest.mark.parametrize(
    ("usage", "told"),
    [
        (Usage(10, 5), {"inputTokens": 10, "outputTokens": 5, "totalTokens": 15}),
        (Usage(10, 5, 0), {"inputTokens": 10, "outputTokens": 5, "totalTokens": 15, "cacheReadInputTokens": 0}),
    ],
)
def test_usage(usage: Usage, told: dict[str, int]) -> None:
    body = encode_reply(Reply(REPLY.choices, usage), envelope()).body
    assert json.loads(body)["usage"] == told
    assert decode_reply(body).usage == usage


def test_tokens_written_to_a_cache_are_part_of_the_prompt() -> None:
    body = json.loads(encode_reply(REPLY, envelope()).body)
    body["usage"] |= {"cacheWriteInputTokens": 100}
    assert decode_reply(msgspec.json.encode(body)).usage == Usage(110, 5, 4)


def test_what_this_api_cannot_tell() -> None:
    two = replace(REPLY, choices=(*REPLY.choices, Choice(1, (), "stop")), usage=Usage(1, 2, None, 1))
    assert [loss.where for loss in encode_reply(two, envelope()).losses] == ["choices[1]"]
    uncounted = encode_reply(replace(REPLY, usage=None), envelope())
    assert [loss.where for loss in uncounted.losses] == ["usage"]
    assert json.loads(uncounted.body)["usage"] == {"inputTokens": 0, "outputTokens": 0, "totalTokens": 0}


@pytest.mark.parametrize(
    ("arguments", "told", "back"),
    [
        ("", {}, "{}"),
        ('{"a": ', {"_malformed_arguments": '{"a": '}, '{"a": '),
        ("[1]", {"_malformed_arguments": "[1]"}, "[1]"),
        (' {"a":1}\n', {"a": 1}, '{"a":1}'),
        (
            '{"_malformed_arguments":"x"}',
            {"_malformed_arguments": '{"_malformed_arguments":"x"}'},
            '{"_malformed_arguments":"x"}',
        ),
        ('{"_malformed_arguments": 1}', {"_malformed_arguments": 1}, '{"_malformed_arguments": 1}'),
    ],
)
def test_arguments_that_are_no_object(arguments: str, told: dict[str, Any], back: str) -> None:
    reply = Reply((Choice(0, (ToolUse("c", "f", arguments),), "tool_calls"),), USAGE)
    encoded = encode_reply(reply, envelope())
    (block,) = json.loads(encoded.body)["output"]["message"]["content"]
    assert block["toolUse"]["input"] == told
    assert decode_reply(encoded.body).choices[0].parts == (ToolUse("c", "f", back),)
    wrapped = bool(told) and "_malformed_arguments" in told and isinstance(told["_malformed_arguments"], str)
    assert [loss.where for loss in encoded.losses] == ["output.message.content[0].toolUse.input"] * wrapped


def test_texts_that_were_cut_for_citations_are_one_text() -> None:
    content = [{"citationsContent": {"content": [{"text": "a"}], "citations": []}}, {"text": "b"}]
    body = {"output": {"message": {"role": "assistant", "content": content}}, "stopReason": "end_turn"}
    assert decode_reply(msgspec.json.encode(body)) == Reply((Choice(0, (Text("ab"),), "stop"),), None)


@pytest.mark.parametrize(
    "body", [b"", b"{}", b'{"output":{"message":{"role":"assistant","content":[]}},"stopReason":"x"}']
)
def test_what_is_no_reply(body: bytes) -> None:
    with pytest.raises(BadReply):
        decode_reply(body)
