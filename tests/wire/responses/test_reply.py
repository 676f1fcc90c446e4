"""Whole replies."""

from __future__ import annotations

import json
from typing import Any

import pytest

from polarproxy.errors import BadReply
from polarproxy.model import Usage
from polarproxy.wire.neutral.reply import Choice, Finish, Reply
from polarproxy.wire.neutral.request import Text, Thinking, ToolUse
from polarproxy.wire.neutral.seal import seal
from polarproxy.wire.responses.reply import decode_reply, encode_reply
from polarproxy.wire.responses.response import context_of
from tests.wire.responses.bodies import AGENTS, ID, PATCH, RUN, SHELL, codex, envelope, places, request

BODY = request({"role": "user", "content": "hi"}, tools=[RUN, AGENTS, PATCH, SHELL])


def said(*parts: Thinking | Text | ToolUse, finish: Finish = "stop", usage: Usage | None = None) -> dict[str, Any]:
    reply = Reply((Choice(0, parts, finish),), usage)
    body: dict[str, Any] = json.loads(encode_reply(reply, envelope(BODY)).body)
    return body


def test_the_items_of_a_reply() -> None:
    body = said(
        Thinking("why"),
        Text("so"),
        ToolUse("c0", "run", '{"cmd": "ls"}'),
        ToolUse("c1", "agents__spawn", "{}"),
        ToolUse("c2", "patch", '{"input": "a\\nb"}'),
        ToolUse("c3", "local_shell", '{"command": ["ls"]}'),
        ToolUse("c4", "invented", "nonsense"),
        finish="tool_calls",
    )
    assert body["output"] == [
        {
            "type": "reasoning",
            "id": f"rs_{ID}00",
            "summary": [],
            "content": [{"type": "reasoning_text", "text": "why"}],
            "encrypted_content": seal("why"),
        },
        {
            "type": "message",
            "id": f"msg_{ID}01",
            "status": "completed",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "so", "annotations": [], "logprobs": []}],
        },
        {
            "type": "function_call",
            "id": f"fc_{ID}02",
            "status": "completed",
            "call_id": "c0",
            "name": "run",
            "arguments": '{"cmd": "ls"}',
        },
        {
            "type": "function_call",
            "id": f"fc_{ID}03",
            "status": "completed",
            "call_id": "c1",
            "name": "spawn",
            "arguments": "{}",
            "namespace": "agents",
        },
        {
            "type": "custom_tool_call",
            "id": f"ctc_{ID}04",
            "status": "completed",
            "call_id": "c2",
            "name": "patch",
            "input": "a\nb",
        },
        {
            "type": "local_shell_call",
            "id": f"lsh_{ID}05",
            "status": "completed",
            "call_id": "c3",
            "action": {"type": "exec", "command": ["ls"], "env": {}},
        },
        {
            "type": "function_call",
            "id": f"fc_{ID}06",
            "status": "completed",
            "call_id": "c4",
            "name": "invented",
            "arguments": "nonsense",
        },
    ]


def test_an_empty_reply_has_no_items() -> None:
    body = said()
    assert (body["output"], body["status"], body["usage"]) == ([], "completed", None)


@pytest.mark.parametrize(
    ("finish", "status", "incomplete", "error"),
    [
        ("stop", "completed", None, None),
        ("stop_sequence", "completed", None, None),
        ("tool_calls", "completed", None, None),
        ("length", "incomplete", {"reason": "max_output_tokens"}, None),
        ("content_filter", "incomplete", {"reason": "content_filter"}, None),
        ("abort", "failed", None, "server_error"),
    ],
)
def test_how_a_reply_ends(finish: Finish, status: str, incomplete: object, error: str | None) -> None:
    body = said(Thinking("t"), Text("a"), Text("b"), finish=finish)
    assert (body["status"], body["incomplete_details"]) == (status, incomplete)
    assert (body["error"] and body["error"]["code"]) == error
    assert body["output"][-1]["status"] == ("completed" if status == "completed" else "incomplete")


def test_only_the_last_item_of_a_reply_that_was_cut_is_incomplete() -> None:
    body = said(Text("a"), ToolUse("c0", "run", "{}"), ToolUse("c1", "run", '{"cmd'), finish="length")
    assert [item["status"] for item in body["output"]] == ["completed", "completed", "incomplete"]


def test_usage() -> None:
    assert said(usage=Usage(100, 20, 64, 8))["usage"] == {
        "input_tokens": 100,
        "input_tokens_details": {"cached_tokens": 64, "cache_write_tokens": 0},
        "output_tokens": 20,
        "output_tokens_details": {"reasoning_tokens": 8},
        "total_tokens": 120,
    }
    assert said(usage=Usage(1, 2))["usage"]["input_tokens_details"]["cached_tokens"] == 0


def test_a_reply_repeats_what_was_asked() -> None:
    asked = json.loads(request({"role": "user", "content": "hi"})) | {
        "instructions": "be kind",
        "metadata": {"a": "b"},
        "temperature": 0.25,
        "top_p": None,
        "tools": [RUN],
        "tool_choice": "required",
        "parallel_tool_calls": False,
        "max_output_tokens": 7,
        "store": False,
        "text": {"verbosity": "low"},
        "previous_response_id": "resp_before",
        "reasoning": {"effort": "low"},
        "truncation": "auto",
        "x_other": 1,
    }
    context = context_of(json.dumps(asked).encode())
    assert "top_p" not in context
    assert "x_other" not in context
    around = envelope()
    around.context.update(context)
    body = json.loads(encode_reply(Reply((Choice(0, (), "stop"),)), around).body)
    repeated = {name: asked[name] for name in context}
    assert {name: body[name] for name in repeated} == repeated
    assert (body["top_p"], body["model"], body["id"], body["object"]) == (None, "asked-model", f"resp_{ID}", "response")
    assert body["created_at"] == 1_760_000_000


def test_the_settings_of_a_request_that_said_nothing() -> None:
    body = json.loads(encode_reply(Reply(()), envelope()).body)
    assert body["status"] == "failed"
    expected = {"tools": [], "tool_choice": "auto", "parallel_tool_calls": True, "store": True, "metadata": {}}
    assert {name: body[name] for name in expected} == expected


def test_what_a_response_cannot_say_is_reported() -> None:
    reply = Reply((Choice(0, (Text("a"),), "stop_sequence", "END"), Choice(1, (Text("b"),), "stop")))
    encoded = encode_reply(reply, envelope())
    assert places(encoded.losses) == ["status", "choices[1]"]
    assert "'END'" in encoded.losses[0].why
    assert json.loads(encoded.body)["output"][0]["content"][0]["text"] == "a"
    assert [item["type"] for item in json.loads(encoded.body)["output"]] == ["message"]


def test_arguments_that_do_not_fit_their_tool_are_reported() -> None:
    uses = (ToolUse("c0", "patch", "*** Begin"), ToolUse("c1", "local_shell", "ls"))
    encoded = encode_reply(Reply((Choice(0, uses, "tool_calls"),)), envelope(BODY))
    output = json.loads(encoded.body)["output"]
    assert places(encoded.losses) == ["output[0].input", "output[1].action"]
    assert (output[0]["input"], output[1]["action"]["_malformed_arguments"]) == ("*** Begin", "ls")


def test_a_response_is_read_by_the_names_it_repeats() -> None:
    parts = (
        Thinking("t"),
        Text("a"),
        ToolUse("c1", "agents__spawn", "{}"),
        ToolUse("c2", "patch", '{"input":"x"}'),
        ToolUse("c3", "local_shell", '{"command": ["ls"]}'),
    )
    reply = Reply((Choice(0, parts, "tool_calls"),), Usage(5, 6, 1))
    assert decode_reply(encode_reply(reply, envelope(BODY)).body) == reply


def test_a_response_of_another_server_is_read() -> None:
    body = {
        "id": "resp_1",
        "status": "incomplete",
        "output": [
            {"type": "reasoning", "id": "rs", "summary": [{"type": "summary_text", "text": "short"}]},
            {"type": "web_search_call", "id": "ws", "status": "completed"},
            {
                "type": "message",
                "role": "assistant",
                "content": [{"type": "output_text", "text": "a"}, {"type": "refusal", "refusal": "b"}],
            },
        ],
        "usage": {"input_tokens": 1, "output_tokens": 2},
    }
    expected = Reply((Choice(0, (Thinking("short"), Text("ab")), "length"),), Usage(1, 2))
    assert decode_reply(json.dumps(body).encode()) == expected
    assert decode_reply(b'{"status":"cancelled"}') == Reply((Choice(0, (), "abort"),))


@pytest.mark.parametrize("body", [b"", b"[]", b'{"output":5}', b'{"output":[{"type":"function_call"}]}'])
def test_what_is_no_response_is_refused(body: bytes) -> None:
    with pytest.raises(BadReply):
        decode_reply(body)


def test_reasoning_comes_back_from_a_harness_that_keeps_only_the_token() -> None:
    body = codex()
    item = said(Thinking("all of it"))["output"][0]
    kept = {"type": "reasoning", "encrypted_content": item["encrypted_content"], "summary": []}
    history = request(*body["input"][:3], kept)
    assert envelope(history).request.messages[-1].parts == (Thinking("all of it"),)
