"""OpenAI Chat Completions: tools, the choice of one, and structured output, read and written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

from polarproxy.model import Loss
from polarproxy.wire.chat.members import note_unknown
from polarproxy.wire.neutral.reading import read
from polarproxy.wire.neutral.request import OutputFormat, Tool, ToolChoice

if TYPE_CHECKING:
    from collections.abc import Sequence

    from polarproxy.wire.chat.media import Json
    from polarproxy.wire.chat.members import Members

_NOTHING = msgspec.Raw(b"null")


class _Function(msgspec.Struct):
    name: str
    description: str | None = None
    parameters: msgspec.Raw = _NOTHING
    strict: bool | None = None


class _Tool(msgspec.Struct):
    type: str = "function"
    function: msgspec.Raw = _NOTHING


class _NamedFunction(msgspec.Struct, forbid_unknown_fields=True):
    name: str


class _NamedTool(msgspec.Struct, forbid_unknown_fields=True):
    function: _NamedFunction
    type: str = "function"


class _NamedSchema(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    schema: msgspec.Raw
    description: str | None = None
    strict: bool | None = None


class _Schema(msgspec.Struct, forbid_unknown_fields=True, tag="json_schema"):
    json_schema: _NamedSchema


class _AnyObject(msgspec.Struct, forbid_unknown_fields=True, tag="json_object"):
    pass


class _PlainText(msgspec.Struct, forbid_unknown_fields=True, tag="text"):
    pass


_list = msgspec.json.Decoder(list[msgspec.Raw])
_tool = msgspec.json.Decoder(_Tool)
_function = msgspec.json.Decoder(_Function)
_TOOL_NAMES = frozenset(_Tool.__struct_fields__)
_FUNCTION_NAMES = frozenset(_Function.__struct_fields__)
_choice: msgspec.json.Decoder[Literal["auto", "none", "required"] | _NamedTool] = msgspec.json.Decoder(
    Literal["auto", "none", "required"] | _NamedTool
)
_format: msgspec.json.Decoder[_Schema | _AnyObject | _PlainText] = msgspec.json.Decoder(
    _Schema | _AnyObject | _PlainText
)


def decode_tools(raw: msgspec.Raw) -> tuple[tuple[Tool, ...], list[Loss]]:
    """The functions; raises `BadRequest` naming the tool that cannot be read."""
    losses: list[Loss] = []
    every = read(_list, raw, "tools")
    read_tools = [_read_tool(each, f"tools[{place}]", losses) for place, each in enumerate(every)]
    return tuple(tool for tool in read_tools if tool is not None), losses


def _read_tool(raw: msgspec.Raw, where: str, losses: list[Loss]) -> Tool | None:
    tool = read(_tool, raw, where)
    if bytes(tool.function) == b"null":
        losses.append(Loss(where, f"a tool of type {tool.type!r}; left out"))
        return None
    function = read(_function, tool.function, f"{where}.function")
    note_unknown(raw, _TOOL_NAMES, where, losses)
    note_unknown(tool.function, _FUNCTION_NAMES, f"{where}.function", losses)
    schema = bytes(function.parameters)
    return Tool(function.name, function.description, None if schema == b"null" else schema, function.strict)


def take_choice(members: Members) -> ToolChoice | None:
    """The choice; one of a kind that only chat has (`allowed_tools`, `custom`) stays among the members."""
    choice = members.take_if("tool_choice", _choice)
    match choice:
        case _NamedTool():
            return ToolChoice("named", choice.function.name)
        case str():
            return ToolChoice(choice)
    return None


def take_format(members: Members) -> OutputFormat | None:
    """The format of the output; None: plain text, or one of a kind that stays among the members (`structural_tag`)."""
    match members.take_if("response_format", _format):
        case _Schema() as said:
            schema = said.json_schema
            return OutputFormat(bytes(schema.schema), schema.name, schema.description, schema.strict)
        case _AnyObject():
            return OutputFormat(None)
    return None


def encode_tools(tools: Sequence[Tool], *, engine: bool) -> tuple[list[Json], list[Loss]]:
    """The tools; for an engine a flattened one is a function like any other, and the reply's encoder undoes it."""
    losses = [
        Loss(f"tools[{place}]", f"chat knows functions only; this {tool.kind} {tool.namespace or ''} was made one")
        for place, tool in enumerate(tools)
        if not engine and (tool.kind != "function" or tool.namespace is not None or tool.own_name is not None)
    ]
    return [{"type": "function", "function": _written(tool)} for tool in tools], losses


def _written(tool: Tool) -> Json:
    function: Json = {"name": tool.name}
    if tool.description is not None:
        function["description"] = tool.description
    if tool.parameters is not None:
        function["parameters"] = msgspec.Raw(tool.parameters)
    if tool.strict is not None:
        function["strict"] = tool.strict
    return function


def encode_choice(choice: ToolChoice, tools: Sequence[Tool]) -> tuple[str | Json | None, list[Loss]]:
    """The choice; None, and a loss, when no tool is left that it could be of (an engine refuses such a request)."""
    if choice.mode == "none":
        return "none", []
    if not tools or (choice.mode == "named" and choice.name not in {tool.name for tool in tools}):
        return None, [Loss("tool_choice", f"{choice.mode} {choice.name or ''}: no such tool is left; left out")]
    if choice.mode == "named":
        return {"type": "function", "function": {"name": choice.name}}, []
    return choice.mode, []


def encode_format(output: OutputFormat) -> Json:
    """The response format."""
    if output.schema is None:
        return {"type": "json_object"}
    schema: Json = {"name": output.name}
    if output.description is not None:
        schema["description"] = output.description
    schema["schema"] = msgspec.Raw(output.schema)
    if output.strict is not None:
        schema["strict"] = output.strict
    return {"type": "json_schema", "json_schema": schema}
