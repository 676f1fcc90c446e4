"""Settings of a request, and what is written for a request of another dialect."""

from __future__ import annotations

import json
from typing import Any

import pytest

from polarproxy.errors import BadRequest
from polarproxy.wire.neutral.request import (
    Media,
    Message,
    OutputFormat,
    Reasoning,
    Request,
    Text,
    Thinking,
    ToolChoice,
    ToolResult,
    ToolUse,
)
from polarproxy.wire.responses.request import decode_request, encode_request
from tests.wire.responses.bodies import codex, decoded, losses, places

SCHEMA = {"type": "object", "properties": {"n": {"type": "number"}}}
FORMAT = {"type": "json_schema", "name": "answer", "schema": SCHEMA, "description": "It.", "strict": True}
HI = {"role": "user", "content": "hi"}


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        ({"model": "gpt-x"}, {"model": "gpt-x"}),
        ({"stream": True}, {"stream": True}),
        ({"stream": None}, {"stream": False}),
        ({"max_output_tokens": 9}, {"max_tokens": 9}),
        ({"temperature": 0, "top_p": 0.5}, {"temperature": 0.0, "top_p": 0.5}),
        ({"parallel_tool_calls": False}, {"parallel_tool_calls": False}),
        ({"metadata": {"a": "b"}, "user": "u"}, {"metadata": {"a": "b"}, "user": "u"}),
        ({"metadata": None, "user": None}, {"metadata": {}, "user": None}),
        ({"top_k": 5, "seed": 7, "stop": "x"}, {"top_k": 5, "seed": 7, "stop": ("x",)}),
        ({"stop": ["x", "y"], "presence_penalty": 1}, {"stop": ("x", "y"), "presence_penalty": 1.0}),
        ({"reasoning": {"effort": "high"}}, {"reasoning": Reasoning(effort="high")}),
        ({"reasoning": {"effort": "none"}}, {"reasoning": Reasoning(effort="none")}),
        ({"reasoning": {"effort": None, "summary": None}}, {"reasoning": None}),
        (
            {"reasoning": {"effort": "low", "context": "auto", "mode": "standard"}},
            {"reasoning": Reasoning(effort="low")},
        ),
        ({"text": {"format": {"type": "text"}, "verbosity": "medium"}}, {"output": None}),
        ({"text": {"format": {"type": "json_object"}}}, {"output": OutputFormat(None)}),
        (
            {"text": {"format": FORMAT}},
            {"output": OutputFormat(json.dumps(SCHEMA).encode(), "answer", "It.", strict=True)},
        ),
        ({"min_p": 0.1, "x_new": {"a": 1}}, {"extra": {"min_p": b"0.1", "x_new": b'{"a": 1}'}}),
        ({"x_null": None, "background": False, "truncation": "disabled", "top_logprobs": 0}, {"extra": {}}),
    ],
)
def test_a_setting(members: dict[str, Any], expected: dict[str, Any]) -> None:
    read = decoded(HI, **members)
    assert read.losses == ()
    assert {name: getattr(read.request, name) for name in expected} == expected


def test_what_the_proxy_answers_itself_is_no_loss() -> None:
    answered = {
        "store": True,
        "include": ["reasoning.encrypted_content"],
        "prompt_cache_key": "k",
        "prompt_cache_options": {"mode": "implicit"},
        "prompt_cache_retention": "24h",
        "safety_identifier": "s",
        "service_tier": "auto",
        "stream_options": {"include_obfuscation": False},
        "client_metadata": {"session_id": "s"},
        "generate": True,
        "stream_id": "a",
        "previous_response_id": None,
        "conversation": None,
        "prompt": None,
    }
    read = decoded(HI, **answered)
    assert (read.losses, read.request.extra) == ((), {})


@pytest.mark.parametrize(
    ("members", "where"),
    [
        ({"reasoning": {"summary": "auto"}}, "reasoning.summary"),
        ({"reasoning": {"context": "all_turns"}}, "reasoning.context"),
        ({"reasoning": {"mode": "pro"}}, "reasoning.mode"),
        ({"reasoning": {"effort": "boundless"}}, "reasoning.effort"),
        ({"reasoning": {"new": 1}}, "reasoning.new"),
        ({"text": {"verbosity": "low"}}, "text.verbosity"),
        ({"text": {"format": {"type": "grammar"}}}, "text.format"),
        ({"truncation": "auto"}, "truncation"),
        ({"include": ["message.output_text.logprobs"]}, "include"),
        ({"top_logprobs": 3}, "top_logprobs"),
        ({"max_tool_calls": 3}, "max_tool_calls"),
        ({"context_management": [{"type": "compaction"}]}, "context_management"),
        ({"moderation": {"model": "m"}}, "moderation"),
    ],
)
def test_a_setting_without_a_meaning_is_reported(members: dict[str, Any], where: str) -> None:
    assert losses(HI, **members) == [where]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"{", "the request body: "),
        (b"[]", "the request body: Expected `object`, got `array`"),
        (b"\xff\xfe", "the request body: "),
        (b'{"model":"m"}', "the request body: `input` is missing"),
        (b'{"model":"m","input":null}', "the request body: `input` is missing"),
        (b'{"model":5,"input":"x"}', "Expected `str | null`, got `int` - at `$.model`"),
        (b'{"input":5}', "at `$.input`"),
        (b'{"input":"x","temperature":"hot"}', "at `$.temperature`"),
        (b'{"input":"x","metadata":{"a":1}}', "at `$.metadata[...]`"),
        (b'{"input":"x","background":true}', "background: "),
        (b'{"input":"x","conversation":"conv_1"}', "conversation: "),
        (b'{"input":"x","prompt":{"id":"p"}}', "prompt: "),
        (b'{"input":"x","previous_response_id":"resp_1"}', "Previous response with id 'resp_1' not found."),
        (b'{"input":"x","include":"all"}', "include: "),
        (b'{"input":"x","reasoning":"hard"}', "reasoning: "),
        (b'{"input":"x","text":{"format":{"type":"json_schema"}}}', "text.format: `schema` is missing"),
    ],
)
def test_what_cannot_be_understood_is_refused(body: bytes, message: str) -> None:
    with pytest.raises(BadRequest) as refused:
        decode_request(body)
    assert message in str(refused.value)


def test_nesting_without_end_is_refused() -> None:
    with pytest.raises(BadRequest):
        decode_request(b'{"input":' + b"[" * 100_000)


def test_a_turn_of_codex_survives_being_written() -> None:
    body = codex()
    read = decoded(*body.pop("input"), **body)
    written = encode_request(read.request)
    assert written.losses == ()
    assert decode_request(written.body).request == read.request


def test_what_a_request_says() -> None:
    request = Request(
        "m",
        (
            Message("system", (Text("s"),)),
            Message("user", (Text("see"), Media("image/*", "https://x.invalid/a.png"))),
            Message("assistant", (Thinking("t"), Text("a"), Text("b"), ToolUse("c1", "run", "{}"))),
            Message("tool", (ToolResult("c1", (Text("done"),)),)),
        ),
        stream=True,
        tool_choice=ToolChoice("auto"),
        max_tokens=5,
    )
    body = json.loads(encode_request(request).body)
    assert [item["type"] for item in body["input"]] == [
        "message",
        "message",
        "reasoning",
        "message",
        "function_call",
        "function_call_output",
    ]
    assert body["input"][1]["content"][1] == {"type": "input_image", "image_url": "https://x.invalid/a.png"}
    assert [part["text"] for part in body["input"][3]["content"]] == ["a", "b"]
    assert body["input"][5] == {"type": "function_call_output", "call_id": "c1", "output": "done"}
    assert (body["stream"], body["tool_choice"], body["max_output_tokens"]) == (True, "auto", 5)
    assert "tools" not in body


def test_what_this_api_cannot_say_is_reported() -> None:
    request = Request(
        "m",
        (
            Message("user", (Media("image/png", "data:image/png;base64,AA==", "a.png"),), "ann"),
            Message("user", (Media("video/mp4", "https://x.invalid/a.mp4"),)),
            Message("assistant", (Media("image/png", "data:image/png;base64,AA=="),)),
            Message("tool", (ToolResult("c1", (Text("no"),), is_error=True),)),
        ),
        n=2,
        reasoning=Reasoning(enabled=True, budget=5, shown=False),
    )
    written = encode_request(request)
    assert places(written.losses) == [
        "messages[0].name",
        "messages[0]",
        "messages[1]",
        "messages[2]",
        "messages[3]",
        "n",
        "reasoning.budget",
        "reasoning.shown",
        "reasoning.enabled",
    ]
    assert "reasoning" not in json.loads(written.body)


def test_thinking_switched_off_is_no_effort() -> None:
    written = encode_request(Request("m", (), reasoning=Reasoning(enabled=False)))
    assert (json.loads(written.body)["reasoning"], written.losses) == ({"effort": "none"}, ())
