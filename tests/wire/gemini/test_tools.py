from __future__ import annotations

from typing import Any

import msgspec
import pytest

from polarproxy.errors import BadRequest
from polarproxy.wire.gemini.request import decode_request, encode_request
from polarproxy.wire.gemini.schema import json_schema
from polarproxy.wire.neutral.request import Message, Text, Tool, ToolChoice, ToolResult, ToolUse
from tests.wire.gemini.bodies import HELLO, decoded, messages, read, wheres


def declare(*functions: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"functionDeclarations": list(functions)}]


@pytest.mark.parametrize(
    ("function", "tool"),
    [
        ({"name": "run"}, Tool("run")),
        ({"name": "run", "description": "Runs."}, Tool("run", "Runs.")),
        (
            {"name": "run", "parametersJsonSchema": {"type": "object", "properties": {"type": {"type": "string"}}}},
            Tool("run", parameters=b'{"type":"object","properties":{"type":{"type":"string"}}}'),
        ),
        (
            {"name": "run", "parameters": {"type": "OBJECT", "properties": {"type": {"type": "STRING"}}}},
            Tool("run", parameters=b'{"type":"object","properties":{"type":{"type":"string"}}}'),
        ),
        (
            {"name": "run", "parameters_json_schema": {"type": "object"}, "parameters": {"type": "STRING"}},
            Tool("run", parameters=b'{"type":"object"}'),
        ),
        ({"name": "server.run:now"}, Tool("server_run_now", own_name="server.run:now")),
    ],
)
@pytest.mark.parametrize("name", ["functionDeclarations", "function_declarations"])
def test_a_declared_function(name: str, function: dict[str, Any], tool: Tool) -> None:
    request = read(tools=[{name: [function]}])
    assert request.tools == (tool,)
    again = encode_request(request)
    assert again.losses == ()
    assert decode_request(again.body, model="gemini-3.8-flash", stream=True).request == request


def test_functions_of_several_tools_are_one_list() -> None:
    request = read(tools=[*declare({"name": "a"}), *declare({"name": "b"}, {"name": "c"})])
    assert [tool.name for tool in request.tools] == ["a", "b", "c"]


def test_names_that_the_engine_cannot_tell_apart_are_told_apart() -> None:
    request = read(tools=declare({"name": "a.b"}, {"name": "a_b"}, {"name": "a:b"}))
    assert [(tool.name, tool.own_name) for tool in request.tools] == [
        ("a_b", "a.b"),
        ("a_b_2", "a_b"),
        ("a_b_3", "a:b"),
    ]
    names = [
        tool["name"] for tool in msgspec.json.decode(encode_request(request).body)["tools"][0]["functionDeclarations"]
    ]
    assert names == ["a.b", "a_b", "a:b"]


def test_the_conversation_uses_the_names_that_the_engine_knows() -> None:
    call = {"role": "model", "parts": [{"functionCall": {"id": "x", "name": "a.b", "args": {}}}]}
    result = {"parts": [{"functionResponse": {"id": "x", "name": "a.b", "response": {"output": "ok"}}}]}
    request = read(contents=[HELLO, call, result], tools=declare({"name": "a.b"}))
    assert request.messages[1:] == (
        Message("assistant", (ToolUse("x", "a_b", "{}"),)),
        Message("tool", (ToolResult("x", (Text("ok"),), name="a_b"),)),
    )
    body = msgspec.json.decode(encode_request(request).body)
    assert body["contents"][1]["parts"][0]["functionCall"]["name"] == "a.b"
    assert body["contents"][2]["parts"][0]["functionResponse"]["name"] == "a.b"
    assert messages(HELLO, call)[1].parts == (ToolUse("x", "a_b", "{}"),)


@pytest.mark.parametrize(
    ("tools", "lost"),
    [
        ([{"googleSearch": {}}], ["tools[0].googleSearch"]),
        ([{"google_search": {}}], ["tools[0].google_search"]),
        ([{"urlContext": {}, "codeExecution": {}}], ["tools[0].urlContext", "tools[0].codeExecution"]),
        (declare({"name": "a"}, {"name": "a"}), ["tools[0].functionDeclarations[1]"]),
        (
            declare({"name": "a", "response": {"type": "STRING"}, "behavior": "BLOCKING"}),
            ["tools[0].functionDeclarations[0].response", "tools[0].functionDeclarations[0].behavior"],
        ),
    ],
)
def test_what_the_engine_cannot_run_is_left_out_and_told(tools: list[dict[str, Any]], lost: list[str]) -> None:
    assert wheres(decoded(tools=tools)) == lost


@pytest.mark.parametrize("functions", [[{"description": "no name"}], [{"name": ""}]])
def test_a_function_needs_a_name(functions: list[dict[str, Any]]) -> None:
    with pytest.raises(BadRequest, match=r"tools\[0\]\.functionDeclarations\[0\]\.name is missing"):
        decoded(tools=declare(*functions))


@pytest.mark.parametrize(
    ("calling", "choice"),
    [
        ({}, None),
        ({"mode": "MODE_UNSPECIFIED"}, None),
        ({"mode": "AUTO"}, ToolChoice("auto")),
        ({"mode": "auto"}, ToolChoice("auto")),
        ({"mode": "NONE"}, ToolChoice("none")),
        ({"mode": "ANY"}, ToolChoice("required")),
        ({"mode": "ANY", "allowedFunctionNames": ["a.b"]}, ToolChoice("named", "a_b")),
        ({"mode": "ANY", "allowed_function_names": "a.b"}, ToolChoice("named", "a_b")),
    ],
)
@pytest.mark.parametrize("name", ["toolConfig", "tool_config"])
def test_how_freely_a_tool_is_chosen(name: str, calling: dict[str, Any], choice: ToolChoice | None) -> None:
    request = read(tools=declare({"name": "a.b"}, {"name": "c"}), **{name: {"functionCallingConfig": calling}})
    assert request.tool_choice == choice
    again = encode_request(request)
    assert decode_request(again.body, model="gemini-3.8-flash", stream=True).request == request


@pytest.mark.parametrize(
    ("calling", "choice", "lost"),
    [
        ({"mode": "VALIDATED"}, ToolChoice("auto"), "mode"),
        ({"mode": "ANY", "allowedFunctionNames": ["a", "b"]}, ToolChoice("required"), "allowedFunctionNames"),
        ({"mode": "AUTO", "allowedFunctionNames": ["a"]}, ToolChoice("auto"), "allowedFunctionNames"),
        ({"mode": "SOMETIMES"}, None, "mode"),
    ],
)
def test_a_choice_that_the_engine_cannot_make_is_told(
    calling: dict[str, Any], choice: ToolChoice | None, lost: str
) -> None:
    found = decoded(toolConfig={"functionCallingConfig": calling})
    assert found.request.tool_choice == choice
    assert wheres(found) == [f"toolConfig.functionCallingConfig.{lost}"]


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ({"type": "ARRAY", "items": {"type": "INTEGER"}}, {"type": "array", "items": {"type": "integer"}}),
        ({"type": "STRING", "maxLength": "10"}, {"type": "string", "maxLength": 10}),
        ({"type": "STRING", "max_length": 10}, {"type": "string", "maxLength": 10}),
        ({"type": "STRING", "nullable": True}, {"type": ["string", "null"]}),
        ({"type": "STRING", "nullable": False}, {"type": "string"}),
        (
            {"type": "STRING", "nullable": True, "enum": ["STRING"]},
            {"type": ["string", "null"], "enum": ["STRING", None]},
        ),
        ({"type": "TYPE_UNSPECIFIED"}, {}),
        (
            {"any_of": [{"type": "STRING"}, {"type": "NULL"}], "nullable": True},
            {"anyOf": [{"type": "string"}, {"type": "null"}, {"type": "null"}]},
        ),
        (
            {"type": "OBJECT", "properties": {"any_of": {"type": "NUMBER"}}, "required": ["any_of"]},
            {"type": "object", "properties": {"any_of": {"type": "number"}}, "required": ["any_of"]},
        ),
        (
            {"$defs": {"T": {"type": "BOOLEAN"}}, "additionalProperties": {"$ref": "#/$defs/T"}},
            {"$defs": {"T": {"type": "boolean"}}, "additionalProperties": {"$ref": "#/$defs/T"}},
        ),
        ({"default": {"type": "STRING"}, "example": "STRING"}, {"default": {"type": "STRING"}, "example": "STRING"}),
        (True, True),
    ],
)
def test_a_schema_in_the_words_of_json_schema(given: object, meant: object) -> None:
    assert msgspec.json.decode(json_schema(msgspec.json.encode(given), "schema")) == meant


def test_a_schema_that_needs_no_change_keeps_its_bytes() -> None:
    schema = b'{ "type": "object",  "properties": {"n": {"type":"number","maximum":1e3}} }'
    assert json_schema(schema, "schema") is schema


def test_a_schema_that_cannot_be_read_is_refused() -> None:
    with pytest.raises(BadRequest, match="parameters is not a schema"):
        json_schema(b'{"maximum": 1e999}', "parameters")
