"""What a neutral request becomes, and what this API cannot say of it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from polarproxy.wire.bedrock.request import encode_request
from polarproxy.wire.neutral.request import (
    Media,
    Message,
    OutputFormat,
    Reasoning,
    Request,
    Text,
    Thinking,
    Tool,
    ToolChoice,
    ToolResult,
    ToolUse,
)
from polarproxy.wire.neutral.seal import seal

SOUND = Media("audio/wav", "data:audio/wav;base64,AAEC")


def body_of(request: Request) -> dict[str, Any]:
    body = json.loads(encode_request(request).body)
    assert isinstance(body, dict)
    return body


def test_a_request_in_full() -> None:
    request = Request(
        model="m",
        messages=(
            Message("system", (Text("s"),)),
            Message("user", (Text("u"), Media("image/png", "data:image/png;base64,AAEC"))),
            Message("assistant", (Thinking("t"), Text("a"), ToolUse("c", "f", '{"x":1.0}'))),
            Message("tool", (ToolResult("c", (Text("r"),), is_error=True),)),
            Message("user", (Text("v"),)),
        ),
        tools=(Tool("f", "d", b'{"type":"object"}', strict=True), Tool("g")),
        tool_choice=ToolChoice("named", "f"),
        max_tokens=5,
        temperature=0.0,
        stop=("S",),
        top_k=3,
        output=OutputFormat(b'{"a": 1}', "n"),
        reasoning=Reasoning(True, "high", 100),
        metadata={"k": "v"},
        extra={"serviceTier": b'{"type":"flex"}', "min_p": b"0.10"},
    )
    assert body_of(request) == {
        "system": [{"text": "s"}],
        "messages": [
            {"role": "user", "content": [{"text": "u"}, {"image": {"format": "png", "source": {"bytes": "AAEC"}}}]},
            {
                "role": "assistant",
                "content": [
                    {"reasoningContent": {"reasoningText": {"text": "t", "signature": seal("t")}}},
                    {"text": "a"},
                    {"toolUse": {"toolUseId": "c", "name": "f", "input": {"x": 1.0}}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"toolResult": {"toolUseId": "c", "content": [{"text": "r"}], "status": "error"}},
                    {"text": "v"},
                ],
            },
        ],
        "inferenceConfig": {"maxTokens": 5, "temperature": 0.0, "stopSequences": ["S"]},
        "toolConfig": {
            "tools": [
                {
                    "toolSpec": {
                        "name": "f",
                        "description": "d",
                        "inputSchema": {"json": {"type": "object"}},
                        "strict": True,
                    }
                },
                {"toolSpec": {"name": "g", "inputSchema": {"json": {"type": "object", "properties": {}}}}},
            ],
            "toolChoice": {"tool": {"name": "f"}},
        },
        "outputConfig": {
            "effort": "high",
            "textFormat": {"type": "json_schema", "structure": {"jsonSchema": {"schema": '{"a": 1}', "name": "n"}}},
        },
        "additionalModelRequestFields": {
            "top_k": 3,
            "thinking": {"type": "enabled", "budget_tokens": 100},
            "min_p": 0.10,
        },
        "requestMetadata": {"k": "v"},
        "serviceTier": {"type": "flex"},
    }


@pytest.mark.parametrize(
    ("members", "wheres"),
    [
        ({"messages": (Message("user", (Text("a"),), "bob"),)}, ["messages[0].name"]),
        ({"messages": (Message("developer", (Text("a"),)),)}, ["messages[0].role"]),
        ({"messages": (Message("user", (Media("image/png", "https://a.invalid/b.png"),)),)}, ["messages[0].parts[0]"]),
        ({"messages": (Message("user", (Media("image/*", "data:image/tiff;base64,AA"),)),)}, ["messages[0].parts[0]"]),
        (
            {"messages": (Message("user", (Media("image/png", "data:image/png;base64,AA", "n", "low"),)),)},
            ["messages[0].parts[0]", "messages[0].parts[0]"],
        ),
        (
            {"messages": (Message("tool", (ToolResult("c", (SOUND,)),)),)},
            ["messages[0].parts[0].toolResult.content[0]"],
        ),
        (
            {"messages": (Message("assistant", (ToolUse("c", "f", "{"),)),)},
            ["messages[0].parts[0].toolUse.input"],
        ),
        ({"tools": (Tool("f", kind="custom"),)}, ["tools[0]"]),
        ({"tools": (Tool("n__f", namespace="n", own_name="f"),)}, ["tools[0]"]),
        ({"tool_choice": ToolChoice("none")}, ["tool_choice"]),
        ({"output": OutputFormat(None)}, ["output"]),
        ({"output": OutputFormat(b"{}", strict=True)}, ["output.strict"]),
        ({"n": 2}, ["n"]),
        ({"stream_usage": True}, ["stream_usage"]),
        ({"extra": {"thinking": b"1"}}, ["extra.thinking"]),
    ],
)
def test_what_cannot_be_said_is_told(members: dict[str, Any], wheres: list[str]) -> None:
    encoded = encode_request(Request(**({"model": "m", "messages": ()} | members)))
    assert [loss.where for loss in encoded.losses] == wheres
    assert isinstance(json.loads(encoded.body), dict)


def test_what_cannot_be_said_is_not_in_the_body() -> None:
    unsayable = Media("image/png", "https://a.invalid/b.png")
    request = Request("m", (Message("user", (unsayable, Text("t"))),), tool_choice=ToolChoice("none"), n=2)
    assert body_of(request) == {"messages": [{"role": "user", "content": [{"text": "t"}]}]}


@pytest.mark.parametrize(
    ("part", "block"),
    [
        (Thinking("", "AAEC"), {"redactedContent": "AAEC"}),
        (Thinking("", "no base64!"), {"reasoningText": {"signature": "no base64!"}}),
        (Thinking("why", "theirs"), {"reasoningText": {"text": "why", "signature": "theirs"}}),
    ],
)
def test_reasoning_of_others_goes_back_as_it_came(part: Thinking, block: dict[str, Any]) -> None:
    (message,) = body_of(Request("m", (Message("assistant", (part,)),)))["messages"]
    assert message["content"] == [{"reasoningContent": block}]


@pytest.mark.parametrize(
    ("mime", "block"),
    [
        ("image/gif", ("image", "gif")),
        ("video/mpeg", ("video", "mpeg")),
        ("audio/mpeg", ("audio", "mp3")),
        ("audio/x-matroska", ("audio", "mkv")),
        ("video/3gpp", ("video", "three_gp")),
        ("text/csv", ("document", "csv")),
    ],
)
def test_of_several_names_of_a_format_one_is_written(mime: str, block: tuple[str, str]) -> None:
    media = Media(mime, f"data:{mime};base64,AAEC")
    (message,) = body_of(Request("m", (Message("user", (media,)),)))["messages"]
    ((kind, written),) = message["content"][0].items()
    assert (kind, written["format"]) == block
    assert written.get("name") == ("document" if kind == "document" else None)
