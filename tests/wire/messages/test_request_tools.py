"""Which tools the engine is told, and how the model may choose among them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from polarproxy.wire.messages.request import decode_request, encode_request
from polarproxy.wire.neutral.request import Request, Tool, ToolChoice
from tests.wire.messages.bodies import PLACEHOLDER, SCHEMA, decode, small

SCHEMA_JSON = msgspec.json.encode(SCHEMA)
CRON = {"name": "CronCreate", "description": "Plans a job.", "input_schema": SCHEMA, "defer_loading": True}
PLAIN = {"name": "Bash", "description": "Runs.", "input_schema": SCHEMA}
EDITOR = {"command", "path", "view_range", "file_text", "old_str", "new_str", "insert_line"}
BASH = Tool("Bash", "Runs.", SCHEMA_JSON)


def _history(*references: str) -> list[dict[str, Any]]:
    content = [{"type": "tool_reference", "tool_name": name} for name in references]
    return [
        {"role": "user", "content": "find a tool"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "ToolSearch", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": content}]},
    ]


def _names(body: dict[str, Any]) -> list[str]:
    return [tool.name for tool in decode(body).request.tools]


@pytest.mark.parametrize(
    ("tool", "read"),
    [
        (PLAIN, BASH),
        (PLAIN | {"type": "custom"}, BASH),
        (PLAIN | {"type": None, "defer_loading": False, "eager_input_streaming": True}, BASH),
        (PLAIN | {"strict": True}, Tool("Bash", "Runs.", SCHEMA_JSON, strict=True)),
        ({"name": "n", "input_schema": {}}, Tool("n", None, b"{}")),
    ],
)
def test_functions(tool: dict[str, Any], read: Tool) -> None:
    decoded = decode(small(tools=[tool]))
    assert decoded.request.tools == (read,)
    assert decoded.losses == ()


def test_members_of_a_function_that_engines_do_not_have_are_reported() -> None:
    decoded = decode(small(tools=[PLAIN | {"input_examples": [{}], "allowed_callers": ["direct"]}]))
    assert decoded.request.tools == (BASH,)
    assert [loss.where for loss in decoded.losses] == ["tools[0].input_examples", "tools[0].allowed_callers"]


@pytest.mark.parametrize(
    "tool",
    [
        {"type": "web_search_20250305", "name": "web_search", "max_uses": 8},
        {"type": "code_execution_20260521", "name": "code_execution"},
        {"type": "mcp_toolset", "mcp_server_name": "s"},
        {"type": "computer_20250124", "name": "computer", "display_width_px": 1, "display_height_px": 1},
    ],
)
def test_tools_of_the_provider_are_left_out_and_reported(tool: dict[str, Any]) -> None:
    decoded = decode(small(tools=[tool, PLAIN], tool_choice={"type": "auto"}))
    assert decoded.request.tools == (BASH,)
    assert [loss.where for loss in decoded.losses] == ["tools[0]"]


def test_a_second_tool_of_a_name_is_left_out() -> None:
    decoded = decode(small(tools=[PLAIN, PLAIN | {"description": "other"}]))
    assert decoded.request.tools == (BASH,)
    assert [loss.where for loss in decoded.losses] == ["tools[1]"]


def test_deferred_tools_wait_until_a_result_refers_to_them() -> None:
    tools = [CRON, PLAIN, PLACEHOLDER]
    assert _names(small(tools=tools)) == ["Bash"]
    loaded = decode(small(tools=tools, messages=_history("CronCreate", "Unknown")))
    assert [tool.name for tool in loaded.request.tools] == ["CronCreate", "Bash"]
    assert [loss.where for loss in loaded.losses] == [
        "messages[2].content[0].content[0]",
        "messages[2].content[0].content[1]",
        "tools[2]",
    ]


def test_deferred_tools_are_there_from_the_start_when_only_the_provider_could_search_them() -> None:
    search = {"type": "tool_search_tool_regex_20251119", "name": "tool_search_tool_regex"}
    assert _names(small(tools=[search, CRON, PLAIN])) == ["CronCreate", "Bash"]


def test_the_tools_are_those_in_effect_at_the_end_of_the_conversation() -> None:
    def change(kind: str, **tool: Any) -> dict[str, Any]:
        return {"role": "system", "content": [{"type": kind, "tool": tool}]}

    def names(*changes: dict[str, Any]) -> list[str]:
        return _names(small(tools=[CRON, PLAIN], messages=[{"role": "user", "content": "x"}, *changes]))

    reference = {"type": "tool_reference"}
    assert names(change("tool_addition", name="CronCreate", **reference)) == ["CronCreate", "Bash"]
    assert names(change("tool_removal", name="Bash", **reference)) == []
    assert names(
        change("tool_removal", name="Bash", **reference), change("tool_addition", name="Bash", **reference)
    ) == ["Bash"]
    assert names(change("tool_addition", type="tool_definition", definition=PLAIN | {"name": "New"})) == ["Bash", "New"]
    assert names(change("tool_addition", type="mcp_toolset_reference", server_name="s")) == ["Bash"]


@pytest.mark.parametrize(
    ("kind", "name", "properties"),
    [
        ("bash_20250124", "bash", {"command", "restart"}),
        ("text_editor_20250124", "str_replace_editor", EDITOR),
        ("text_editor_20250728", "str_replace_based_edit_tool", EDITOR | {"insert_text"}),
        ("memory_20250818", "memory", EDITOR | {"insert_text", "old_path", "new_path"}),
    ],
)
def test_tools_that_the_client_runs_become_functions_and_their_type_again(
    kind: str, name: str, properties: set[str]
) -> None:
    decoded = decode(small(tools=[{"type": kind, "name": name}]))
    assert decoded.losses == ()
    (tool,) = decoded.request.tools
    assert (tool.name, tool.kind) == (name, kind)
    assert set(msgspec.json.decode(tool.parameters or b"")["properties"]) == properties
    body = msgspec.json.decode(encode_request(decoded.request).body)
    assert body["tools"] == [{"type": kind, "name": name}]


def test_options_of_a_tool_that_the_client_runs_are_reported() -> None:
    tool = {"type": "text_editor_20250728", "name": "str_replace_based_edit_tool", "max_characters": 10}
    assert [loss.where for loss in decode(small(tools=[tool])).losses] == ["tools[0].max_characters"]


@pytest.mark.parametrize(
    ("choice", "read", "parallel", "lost"),
    [
        (None, None, None, []),
        ({"type": "auto"}, ToolChoice("auto"), None, []),
        ({"type": "auto", "disable_parallel_tool_use": True}, ToolChoice("auto"), False, []),
        ({"type": "any", "disable_parallel_tool_use": False}, ToolChoice("required"), True, []),
        ({"type": "tool", "name": "Bash"}, ToolChoice("named", "Bash"), None, []),
        ({"type": "none"}, ToolChoice("none"), None, []),
        ({"type": "tool", "name": "web_search"}, None, None, ["tool_choice"]),
        ({"type": "tool"}, None, None, ["tool_choice"]),
        ({"type": "best"}, None, None, ["tool_choice"]),
    ],
)
def test_tool_choice(choice: object, read: ToolChoice | None, parallel: bool | None, lost: list[str]) -> None:
    decoded = decode(small(tools=[PLAIN], tool_choice=choice))
    assert (decoded.request.tool_choice, decoded.request.parallel_tool_calls) == (read, parallel)
    assert [loss.where for loss in decoded.losses] == lost


@pytest.mark.parametrize(
    ("choice", "lost"),
    [
        ({"type": "auto"}, ["tools[0]"]),
        ({"type": "any"}, ["tools[0]", "tool_choice"]),
        ({"type": "tool", "name": "web_search"}, ["tools[0]", "tool_choice"]),
    ],
)
def test_there_is_no_choice_when_no_tool_is_left(choice: object, lost: list[str]) -> None:
    decoded = decode(small(tools=[{"type": "web_search_20250305", "name": "web_search"}], tool_choice=choice))
    assert (decoded.request.tools, decoded.request.tool_choice) == ((), None)
    assert [loss.where for loss in decoded.losses] == lost


@pytest.mark.parametrize(
    ("tools", "choice", "parallel", "heard", "lost"),
    [
        ((BASH,), None, False, (ToolChoice("auto"), False), ["tool_choice"]),
        ((BASH,), ToolChoice("none"), True, (ToolChoice("none"), None), ["parallel_tool_calls"]),
        ((), ToolChoice("auto"), True, (None, None), ["tool_choice", "parallel_tool_calls"]),
        ((BASH,), ToolChoice("named", "Bash"), True, (ToolChoice("named", "Bash"), True), []),
    ],
)
def test_choices_that_cannot_be_said_are_reported(
    tools: tuple[Tool, ...],
    choice: ToolChoice | None,
    parallel: bool | None,
    heard: tuple[ToolChoice | None, bool | None],
    lost: list[str],
) -> None:
    messages = decode(small()).request.messages
    encoded = encode_request(
        Request("m", messages, tools=tools, tool_choice=choice, parallel_tool_calls=parallel, max_tokens=1)
    )
    read = decode_request(encoded.body).request
    assert (read.tool_choice, read.parallel_tool_calls) == heard
    assert [loss.where for loss in encoded.losses] == lost


@pytest.mark.parametrize(
    "tool",
    [
        Tool("space__own", None, b"{}", namespace="space", own_name="own"),
        Tool("shell", None, b"{}", kind="local_shell"),
        Tool("bare"),
    ],
)
def test_tools_that_cannot_be_said_whole_are_reported(tool: Tool) -> None:
    encoded = encode_request(Request("m", decode(small()).request.messages, tools=(tool,), max_tokens=1))
    assert [each.name for each in decode_request(encoded.body).request.tools] == [tool.name]
    assert [loss.where for loss in encoded.losses] == ["tools[0]"]
