"""What content blocks become."""

from __future__ import annotations

from typing import Any

import pytest

from polarproxy.wire.messages.request import decode_request, encode_request
from polarproxy.wire.neutral.request import Media, Message, Part, Request, Text, Thinking, ToolResult, ToolUse
from polarproxy.wire.neutral.seal import seal
from tests.wire.messages.bodies import decode, small

PNG = "data:image/png;base64,AAEC"
USE = {"type": "tool_use", "id": "t1", "name": "f", "input": {}}


def _parts(role: str, block: dict[str, Any]) -> tuple[tuple[Part, ...], list[str]]:
    decoded = decode(small(messages=[{"role": role, "content": [block]}]))
    parts = tuple(part for message in decoded.request.messages for part in message.parts)
    return parts, [loss.where.removeprefix("messages[0].content[0]") for loss in decoded.losses]


def _source(**members: Any) -> dict[str, Any]:
    return {"source": members}


@pytest.mark.parametrize(
    ("block", "parts", "lost"),
    [
        ({"type": "text", "text": "a"}, (Text("a"),), []),
        ({"type": "text", "text": "a", "citations": None}, (Text("a"),), []),
        ({"type": "text", "text": "a", "citations": [{"type": "char_location"}]}, (Text("a"),), [".citations"]),
        ({"type": "text", "text": "a", "new": 1}, (Text("a"),), [".new"]),
        ({"type": "image"} | _source(type="base64", media_type="image/png", data="AAEC"), (Media("image/png", PNG),), []),
        ({"type": "image"} | _source(type="url", url="https://x.invalid/a"), (Media("image/*", "https://x.invalid/a"),), []),
        ({"type": "image"} | _source(type="url", url=PNG), (Media("image/png", PNG),), []),
        ({"type": "image"} | _source(type="file", file_id="f"), (), [".source"]),
        (
            {"type": "image", "transformations": {}} | _source(type="url", url=PNG),
            (Media("image/png", PNG),),
            [".transformations"],
        ),
        (
            {"type": "document", "title": "t.pdf"} | _source(type="base64", media_type="application/pdf", data="AAEC"),
            (Media("application/pdf", "data:application/pdf;base64,AAEC", "t.pdf"),),
            [],
        ),
        (
            {"type": "document", "context": "c"} | _source(type="url", url="https://x.invalid/a.pdf"),
            (Text("c"), Media("application/pdf", "https://x.invalid/a.pdf")),
            [],
        ),
        (
            {"type": "document", "title": "T", "context": "c", "citations": {"enabled": True}}
            | _source(type="text", media_type="text/plain", data="body"),
            (Text("T\nc\n"), Text("body")),
            [".citations", ""],
        ),
        (
            {"type": "document", "citations": {"enabled": False}} | _source(type="content", content="body"),
            (Text("body"),),
            [""],
        ),
        (
            {"type": "document"}
            | _source(
                type="content",
                content=[
                    {"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}},
                    {"type": "image"} | _source(type="url", url=PNG),
                    {"type": "odd"},
                ],
            ),
            (Text("a"), Media("image/png", PNG)),
            [".source.content[2]", ""],
        ),
        (
            {
                "type": "search_result",
                "title": "T",
                "source": "s",
                "content": [{"type": "text", "text": "a"}],
                "citations": {"enabled": True},
            },
            (Text("T\ns\n"), Text("a")),
            [""],
        ),
        ({"type": "container_upload", "file_id": "f"}, (), [""]),
        ({"type": "thinking", "thinking": "a", "signature": "s"}, (), [""]),
        (USE, (), [""]),
    ],
)  # fmt: skip
def test_blocks_of_a_user(block: dict[str, Any], parts: tuple[Part, ...], lost: list[str]) -> None:
    assert _parts("user", block) == (parts, lost)


@pytest.mark.parametrize(
    ("block", "parts", "lost"),
    [
        ({"type": "thinking", "thinking": "a", "signature": "foreign"}, (Thinking("a", "foreign"),), []),
        ({"type": "thinking", "thinking": "a", "signature": ""}, (Thinking("a"),), []),
        ({"type": "thinking", "thinking": "a"}, (Thinking("a"),), []),
        ({"type": "thinking", "thinking": "a", "signature": seal("a")}, (Thinking("a"),), []),
        ({"type": "thinking", "thinking": "", "signature": seal("a")}, (Thinking("a"),), []),
        ({"type": "thinking", "signature": seal("a")}, (Thinking("a"),), []),
        ({"type": "redacted_thinking", "data": "foreign"}, (Thinking("", "foreign"),), []),
        ({"type": "redacted_thinking", "data": seal("a")}, (Thinking("a"),), []),
        (USE, (ToolUse("t1", "f", "{}"),), []),
        (USE | {"caller": {"type": "direct"}, "toolset_name": None}, (ToolUse("t1", "f", "{}"),), []),
        (USE | {"toolset_name": "browser"}, (ToolUse("t1", "f", "{}"),), [".toolset_name"]),
        (USE | {"input": {"_malformed_arguments": '{"a'}}, (ToolUse("t1", "f", '{"a'),), []),
        (
            USE | {"input": {"_malformed_arguments": 1}},
            (ToolUse("t1", "f", '{"_malformed_arguments":1}'),),
            [],
        ),
        ({"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}, (), [""]),
        ({"type": "image"} | _source(type="url", url=PNG), (), [""]),
    ],
)  # fmt: skip
def test_blocks_of_an_assistant(block: dict[str, Any], parts: tuple[Part, ...], lost: list[str]) -> None:
    assert _parts("assistant", block) == (parts, lost)


@pytest.mark.parametrize(
    ("members", "content", "lost"),
    [
        ({}, (), []),
        ({"content": ""}, (), []),
        ({"content": "out"}, (Text("out"),), []),
        ({"content": [{"type": "text", "text": "out"}]}, (Text("out"),), []),
        (
            {"content": [{"type": "text", "text": "a"}, {"type": "image"} | _source(type="url", url=PNG)]},
            (Text("a"), Media("image/png", PNG)),
            [],
        ),
        (
            {"content": [{"type": "tool_reference", "tool_name": "CronCreate"}]},
            (Text("The tool CronCreate is now available.\n"),),
            [".content[0]"],
        ),
        ({"content": [{"type": "browser_state", "tabs": []}]}, (), [".content[0]"]),
        ({"content": [USE]}, (), [".content"]),
    ],
)
def test_results_of_tools(members: dict[str, Any], content: tuple[Text | Media, ...], lost: list[str]) -> None:
    block = {"type": "tool_result", "tool_use_id": "t1", "cache_control": {"type": "ephemeral"}} | members
    assert _parts("user", block) == ((ToolResult("t1", content),), lost)


def test_failed_results() -> None:
    block = {"type": "tool_result", "tool_use_id": "t1", "content": "no such file", "is_error": True}
    assert _parts("user", block) == ((ToolResult("t1", (Text("no such file"),), is_error=True),), [])


def test_results_stand_in_messages_of_their_own() -> None:
    def result(number: int) -> dict[str, Any]:
        return {"type": "tool_result", "tool_use_id": f"t{number}", "content": str(number)}

    request = decode(
        small(
            messages=[
                {"role": "user", "content": [result(1)]},
                {"role": "user", "content": [result(2), {"type": "text", "text": "then"}]},
                {"role": "user", "content": [result(3)]},
                {"role": "assistant", "content": []},
                {"role": "user", "content": ""},
            ]
        )
    ).request
    assert request.messages == (
        Message("tool", (ToolResult("t1", (Text("1"),)), ToolResult("t2", (Text("2"),)))),
        Message("user", (Text("then"),)),
        Message("tool", (ToolResult("t3", (Text("3"),)),)),
        Message("assistant", ()),
        Message("user", ()),
    )


def test_a_message_of_which_nothing_is_left_is_left_out() -> None:
    decoded = decode(
        small(
            messages=[
                {"role": "assistant", "content": [{"type": "server_tool_use", "id": "s", "name": "n", "input": {}}]},
                {"role": "user", "content": "hi"},
            ]
        )
    )
    assert decoded.request.messages == (Message("user", (Text("hi"),)),)
    assert [loss.where for loss in decoded.losses] == ["messages[0].content[0]"]


def test_arguments_are_the_bytes_that_came() -> None:
    body = (
        b'{"max_tokens":1,"messages":[{"role":"assistant","content":[{"type":"tool_use","id":"i","name":"n",'
        b'"input": { "b":1.0,"a" : "\\u00fc\xc3\xbc", "a": 1e3 } }]}]}'
    )
    request = decode_request(body).request
    assert request.messages[0].parts == (ToolUse("i", "n", '{ "b":1.0,"a" : "\\u00fcü", "a": 1e3 }'),)
    assert decode_request(encode_request(request).body, counting=True).request.messages == request.messages


@pytest.mark.parametrize(
    ("arguments", "back", "lost"),
    [
        ("", "{}", []),
        ('{"a', '{"a', ["messages[0].content[0].input"]),
        ("[1]", "[1]", ["messages[0].content[0].input"]),
    ],
)
def test_arguments_that_are_no_object_are_wrapped(arguments: str, back: str, lost: list[str]) -> None:
    encoded = encode_request(Request("m", (Message("assistant", (ToolUse("i", "n", arguments),)),), max_tokens=1))
    assert [loss.where for loss in encoded.losses] == lost
    decoded = decode_request(encoded.body)
    assert decoded.request.messages == (Message("assistant", (ToolUse("i", "n", back),)),)
    assert decoded.losses == ()


@pytest.mark.parametrize(
    ("media", "kept", "lost"),
    [
        (Media("audio/wav", "data:audio/wav;base64,AAEC"), (), 1),
        (Media("image/png", PNG, detail="high"), (Media("image/png", PNG),), 1),
        (Media("image/png", PNG, name="a.png"), (Media("image/png", PNG),), 1),
        (Media("image/png", "https://x.invalid/a"), (Media("image/*", "https://x.invalid/a"),), 1),
        (
            Media("image/svg+xml", "data:image/svg+xml,<svg/>"),
            (Media("image/svg+xml", "data:image/svg+xml,<svg/>"),),
            0,
        ),
    ],
)
def test_media_that_this_dialect_cannot_say(media: Media, kept: tuple[Media, ...], lost: int) -> None:
    encoded = encode_request(Request("m", (Message("user", (media,)),), max_tokens=1))
    assert decode_request(encoded.body).request.messages == (Message("user", kept),)
    assert len(encoded.losses) == lost


def test_foreign_seals_without_text_are_redacted_thinking() -> None:
    request = Request("m", (Message("assistant", (Thinking("", "foreign"),)),), max_tokens=1)
    body = encode_request(request).body
    assert b'{"type":"redacted_thinking","data":"foreign"}' in body
    assert decode_request(body).request == request
