"""Items of an input as messages."""

from __future__ import annotations

from typing import Any

import pytest

from polarproxy.errors import BadRequest
from polarproxy.wire.neutral.request import Media, Message, Text, Thinking, ToolResult, ToolUse
from polarproxy.wire.neutral.seal import seal
from tests.wire.responses.bodies import AGENTS, PATCH, RUN, SHELL, codex, decoded, losses, messages, text

CALL = {"type": "function_call", "call_id": "c1", "name": "run", "arguments": '{"cmd": "ls"}'}
IMAGE = "data:image/png;base64,AAEC"


def test_a_turn_of_codex() -> None:
    body = codex()
    read = decoded(*body.pop("input"), **body)
    assert read.request.messages == (
        Message("developer", (Text("You are a careful agent."),)),
        Message("developer", (Text("Rules."), Text("More rules."))),
        Message("user", (Text("make the file"),)),
        Message(
            "assistant",
            (
                Thinking("I should run it.", "foreign-token"),
                Text("I will run it."),
                ToolUse("call_1", "run", '{"cmd": "ls"}'),
            ),
        ),
        Message("tool", (ToolResult("call_1", (Text("a.txt"),)),)),
    )
    assert [loss.where for loss in read.losses] == ["tools[1]", "tools[2]", "reasoning.summary"]


@pytest.mark.parametrize(
    ("item", "message"),
    [
        ({"role": "user", "content": "hi"}, Message("user", (Text("hi"),))),
        ({"role": "user", "content": ""}, Message("user", ())),
        ({"role": "user", "content": []}, Message("user", ())),
        ({"role": "system", "content": "s", "type": None, "id": None}, Message("system", (Text("s"),))),
        (text("developer", "a", "b"), Message("developer", (Text("a"), Text("b")))),
        ({"role": "assistant", "content": "said"}, Message("assistant", (Text("said"),))),
        (
            {"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": "no"}], "phase": None},
            Message("assistant", (Text("no"),)),
        ),
        (
            {
                "role": "user",
                "content": [
                    {"type": "input_image", "image_url": IMAGE, "detail": "high"},
                    {"type": "input_image", "image_url": "https://x.invalid/a.png"},
                    {"type": "input_file", "file_data": "data:application/pdf;base64,AA==", "filename": "a.pdf"},
                    {"type": "input_file", "file_data": "AA=="},
                    {"type": "input_file", "file_url": "https://x.invalid/a.pdf"},
                    {"type": "input_audio", "input_audio": {"data": "AA==", "format": "mp3"}},
                ],
            },
            Message(
                "user",
                (
                    Media("image/png", IMAGE, detail="high"),
                    Media("image/*", "https://x.invalid/a.png"),
                    Media("application/pdf", "data:application/pdf;base64,AA==", "a.pdf"),
                    Media("application/octet-stream", "data:application/octet-stream;base64,AA=="),
                    Media("application/octet-stream", "https://x.invalid/a.pdf"),
                    Media("audio/mpeg", "data:audio/mpeg;base64,AA=="),
                ),
            ),
        ),
    ],
)
def test_a_message(item: dict[str, Any], message: Message) -> None:
    assert messages(item) == (message,)


def test_a_refusal_beside_text_is_reported() -> None:
    said, refused = {"type": "output_text", "text": "b"}, {"type": "refusal", "refusal": "no"}
    read = decoded({"role": "assistant", "content": [said, refused]})
    assert read.request.messages == (Message("assistant", (Text("b"), Text("no"))),)
    assert [loss.where for loss in read.losses] == ["input[0].content[1]"]
    assert losses({"role": "assistant", "content": [refused]}) == []


def test_an_input_of_text_is_the_users() -> None:
    assert decoded(input="hi").request.messages == (Message("user", (Text("hi"),)),)


def test_instructions_come_first() -> None:
    assert messages({"role": "user", "content": "hi"}, instructions="be kind")[0] == Message(
        "system", (Text("be kind"),)
    )
    listed = messages(instructions=[{"role": "developer", "content": "be brief"}])
    assert listed == (Message("developer", (Text("be brief"),)),)
    assert messages(instructions="") == ()


def test_what_the_assistant_says_in_a_row_is_one_message() -> None:
    custom = {"type": "custom_tool_call", "call_id": "c2", "name": "patch", "input": 'a "b"\n'}
    shell = {
        "type": "local_shell_call",
        "id": "lsh_1",
        "call_id": "c3",
        "action": {"type": "exec", "command": ["ls"], "env": {}, "timeout_ms": 5},
    }
    read = messages(
        {"role": "assistant", "content": "one"},
        {"type": "reasoning", "summary": [], "encrypted_content": seal("thought")},
        {"role": "assistant", "content": "two"},
        CALL,
        custom,
        shell,
        tools=[RUN, {**PATCH, "format": None}, SHELL],
    )
    assert read == (
        Message(
            "assistant",
            (
                Text("one"),
                Thinking("thought"),
                Text("two"),
                ToolUse("c1", "run", '{"cmd": "ls"}'),
                ToolUse("c2", "patch", '{"input":"a \\"b\\"\\n"}'),
                ToolUse("c3", "local_shell", '{"command":["ls"],"env":{},"timeout_ms":5}'),
            ),
        ),
    )


def test_results_in_a_row_are_one_message() -> None:
    parts = [{"type": "input_text", "text": "see"}, {"type": "input_image", "image_url": IMAGE}]
    read = messages(
        CALL,
        {"type": "local_shell_call", "id": "lsh_1", "call_id": "c3", "action": {"type": "exec", "command": ["ls"]}},
        {"type": "function_call_output", "call_id": "c1", "output": parts, "status": "completed"},
        {"type": "custom_tool_call_output", "call_id": "c2", "output": ""},
        {"type": "local_shell_call_output", "id": "lsh_1", "output": "{}"},
        {"type": "local_shell_call_output", "id": "c9", "output": "x"},
    )
    assert read[1] == Message(
        "tool",
        (
            ToolResult("c1", (Text("see"), Media("image/png", IMAGE))),
            ToolResult("c2", ()),
            ToolResult("c3", (Text("{}"),)),
            ToolResult("c9", (Text("x"),)),
        ),
    )


@pytest.mark.parametrize(
    ("item", "thinking"),
    [
        (
            {"encrypted_content": seal("whole"), "summary": [{"type": "summary_text", "text": "short"}]},
            Thinking("whole"),
        ),
        ({"encrypted_content": seal("whole"), "content": [{"type": "reasoning_text", "text": "x"}]}, Thinking("whole")),
        (
            {"content": [{"type": "reasoning_text", "text": "a"}, {"type": "reasoning_text", "text": "b"}]},
            Thinking("ab"),
        ),
        (
            {"summary": [{"type": "summary_text", "text": "a"}, {"type": "summary_text", "text": "b"}]},
            Thinking("a\n\nb"),
        ),
        ({"summary": [], "content": None, "encrypted_content": "opaque"}, Thinking("", "opaque")),
    ],
)
def test_reasoning(item: dict[str, Any], thinking: Thinking) -> None:
    assert messages({"type": "reasoning", "id": "rs_1", **item}) == (Message("assistant", (thinking,)),)


def test_reasoning_of_which_nothing_is_left_is_no_turn() -> None:
    assert messages({"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": None}) == ()


def test_nulls_that_litellm_adds_are_harmless() -> None:
    extra = {"async_": None, "caller": None, "namespace": None, "status": "completed"}
    assert messages({**CALL, **extra}) == messages(CALL)


def test_an_unknown_member_is_reported_once() -> None:
    said = {"role": "user", "content": "a", "mood": "good", "other": None}
    read = decoded(said, said, {**said, "internal_chat_message_metadata_passthrough": {"turn_id": "t"}})
    assert [loss.where for loss in read.losses] == ["input[0].mood"]


def test_a_call_is_named_as_its_tool_is() -> None:
    spawn = {**CALL, "name": "spawn"}
    tools = [{**AGENTS, "description": ""}]
    named = Message("assistant", (ToolUse("c1", "agents__spawn", CALL["arguments"]),))
    assert messages({**spawn, "namespace": "agents"}, tools=tools) == (named,)
    assert messages(spawn, tools=tools) == (named,)
    assert messages({**spawn, "namespace": "agents"}) == (named,)
    assert messages({**spawn, "name": "a.b"}) == (Message("assistant", (ToolUse("c1", "a_b", CALL["arguments"]),)),)


@pytest.mark.parametrize(
    ("item", "where"),
    [
        ({"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search"}}, "input[0]"),
        ({"type": "compaction", "encrypted_content": "x"}, "input[0]"),
        ({"type": "computer_call_output", "call_id": "c", "output": {"type": "computer_screenshot"}}, "input[0]"),
        ({"role": "user", "content": [{"type": "input_image", "file_id": "file_1"}]}, "input[0].content[0]"),
        ({"role": "user", "content": [{"type": "new_thing", "data": {}}]}, "input[0].content[0]"),
        ({"role": "assistant", "content": [{"type": "input_image", "image_url": IMAGE}]}, "input[0].content"),
    ],
)
def test_what_cannot_be_carried_is_reported(item: dict[str, Any], where: str) -> None:
    read = decoded(item)
    assert [loss.where for loss in read.losses] == [where]
    assert all(not message.parts for message in read.request.messages)


def test_an_unknown_item_does_not_part_a_turn() -> None:
    search = {"type": "web_search_call", "id": "ws_1"}
    read = decoded({"role": "assistant", "content": "a"}, search, {"role": "assistant", "content": "b"})
    assert read.request.messages == (Message("assistant", (Text("a"), Text("b"))),)


@pytest.mark.parametrize(
    ("item", "message"),
    [
        ({"role": "tool", "content": "x"}, "input[0]: Invalid enum value 'tool'"),
        ({"role": "user", "content": 5}, "input[0]: Expected `str | array | null`, got `int`"),
        ({**CALL, "call_id": None}, "input[0]: Expected `str`, got `null`"),
        ({"type": "function_call", "name": "x"}, "input[0]: Object missing required field `call_id`"),
        ({"type": "function_call_output", "call_id": "c"}, "missing required field `output`"),
        ({"type": "local_shell_call", "call_id": "c", "action": 3}, "input[0].action: Expected `object`, got `int`"),
        ({"type": "item_reference", "id": "msg_9"}, "input[0]: Item with id 'msg_9' not found."),
        ({"id": "msg_9"}, "Item with id 'msg_9' not found."),
        ({"type": 5}, "input[0]: Expected `str | null`, got `int`"),
    ],
)
def test_what_is_no_item_is_refused(item: dict[str, Any], message: str) -> None:
    with pytest.raises(BadRequest) as refused:
        decoded(item)
    assert message in str(refused.value)


def test_tools_inside_the_input() -> None:
    declared = {"type": "additional_tools", "id": "at_1", "role": "developer", "tools": [RUN, AGENTS]}
    read = decoded(declared, {**CALL, "name": "spawn", "namespace": "agents"}, tools=[PATCH])
    assert [tool.name for tool in read.request.tools] == ["patch", "run", "agents__spawn"]
    assert [message.role for message in read.request.messages] == ["assistant"]
    assert losses(declared) == ["input[0].tools[1]"]
