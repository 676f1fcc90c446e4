"""The tools of a request and the choice among them, in both directions.

Functions are carried. Tools that the provider runs itself are left out and reported, as are tools whose loading is
deferred, until the history refers to them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal

import msgspec

from polarproxy.model import Loss
from polarproxy.wire.messages.client_tools import client_tool
from polarproxy.wire.messages.members import FLAG, RAWS, TEXT, Members, Reading
from polarproxy.wire.neutral.request import Tool, ToolChoice

if TYPE_CHECKING:
    from collections.abc import Sequence

    from polarproxy.wire.neutral.request import Request

_SEARCH = "tool_search_tool"


def read_tools(body: Members, reading: Reading) -> tuple[Tool, ...]:
    """The tools in effect at the end of the conversation, by different names. Messages must have been read before."""
    declared = body.get("tools", RAWS) or []
    listed = [Members(raw, f"tools[{place}]") for place, raw in enumerate(declared)] + reading.defined
    # The provider's search tool is left out; what only it could have found must then be there from the start.
    searchable = any((tool.get("type", TEXT) or "").startswith(_SEARCH) for tool in listed)
    tools: dict[str, Tool] = {}
    for members in listed:
        tool = _read_tool(members, searchable, reading)
        if tool is None:
            continue
        if tool.name in tools:
            reading.lose(members.where, f"left out: a second tool of the name {tool.name}")
        else:
            tools[tool.name] = tool
    return tuple(tools.values())


def _read_tool(members: Members, searchable: bool, reading: Reading) -> Tool | None:
    members.ignore("cache_control", "eager_input_streaming")
    kind = members.get("type", TEXT) or "custom"
    deferred = members.get("defer_loading", FLAG)
    tool = _read_function(members) if kind == "custom" else client_tool(kind, members.get("name", TEXT) or kind)
    if tool is None:
        reading.lose(members.where, f"left out: a tool of type {kind} is run by the provider")
        return None
    if tool.name in reading.removed:
        reading.lose(members.where, f"left out: the conversation withdrew the tool {tool.name}")
        return None
    if deferred and not searchable and tool.name not in reading.loaded:
        reading.lose(members.where, f"left out: the tool {tool.name} is deferred, and nothing has loaded it yet")
        return None
    tool = replace(tool, strict=members.get("strict", FLAG))
    reading.lose_rest(members)
    return tool


def _read_function(members: Members) -> Tool:
    return Tool(
        name=members.need("name", TEXT),
        description=members.get("description", TEXT),
        parameters=members.need_json_object("input_schema"),
    )


def read_tool_choice(body: Members, tools: Sequence[Tool], reading: Reading) -> tuple[ToolChoice | None, bool | None]:
    """The choice, and whether calls may be parallel; both None when there is nothing to choose from."""
    members = body.object("tool_choice")
    if members is None:
        return None, None
    kind = members.need("type", TEXT)
    name = members.get("name", TEXT)
    disabled = members.get("disable_parallel_tool_use", FLAG)
    reading.lose_rest(members)
    choice = _choice(kind, name)
    if choice is None:
        reading.lose(members.where, f"left out: a choice of type {kind} is not known here")
        return None, None
    if choice.mode == "named" and choice.name not in {tool.name for tool in tools}:
        reading.lose(members.where, f"left out: the tool {choice.name} is not among the tools that the engine is told")
        return None, None
    if not tools:
        if choice.mode == "required":
            reading.lose(members.where, "left out: there is no tool that the engine could be made to call")
        return None, None
    return choice, None if disabled is None else not disabled


def _choice(kind: str, name: str | None) -> ToolChoice | None:
    match kind:
        case "auto":
            return ToolChoice("auto")
        case "none":
            return ToolChoice("none")
        case "any":
            return ToolChoice("required")
        case "tool" if name is not None:
            return ToolChoice("named", name)
    return None


class Function(msgspec.Struct, omit_defaults=True):
    """A function as it is written."""

    name: str
    input_schema: msgspec.Raw
    description: str | None = None
    strict: bool | None = None


class ClientTool(msgspec.Struct, omit_defaults=True):
    """A tool of a type of this dialect as it is written."""

    type: str
    name: str
    strict: bool | None = None


class Choice(msgspec.Struct, omit_defaults=True):
    """A `tool_choice` as it is written."""

    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


def write_tools(tools: Sequence[Tool], losses: list[Loss]) -> list[Function | ClientTool]:
    """Tools as they are written; one that was flattened out of another dialect stays a function."""
    return [_write_tool(tool, f"tools[{place}]", losses) for place, tool in enumerate(tools)]


def _write_tool(tool: Tool, where: str, losses: list[Loss]) -> Function | ClientTool:
    if client_tool(tool.kind, tool.name) is not None:
        return ClientTool(tool.kind, tool.name, tool.strict)
    if tool.namespace is not None or tool.own_name is not None:
        losses.append(Loss(where, "tools have no namespace in this dialect"))
    if tool.kind != "function":
        losses.append(Loss(where, f"a tool of type {tool.kind} is a function in this dialect"))
    if tool.parameters is None:
        losses.append(Loss(where, "a function without parameters takes an empty object in this dialect"))
    schema = tool.parameters or b'{"type":"object","properties":{}}'
    return Function(tool.name, msgspec.Raw(schema), tool.description, tool.strict)


def write_tool_choice(request: Request, losses: list[Loss]) -> Choice | None:
    """A choice as it is written. None: the request leaves everything to the model, or there is no tool to choose."""
    choice, parallel = request.tool_choice, request.parallel_tool_calls
    disabled = None if parallel is None else not parallel
    if not request.tools:
        if choice is not None:
            losses.append(Loss("tool_choice", "left out: there are no tools"))
        if parallel is not None:
            losses.append(Loss("parallel_tool_calls", "left out: there are no tools"))
        return None
    if choice is None and disabled is not None:
        losses.append(Loss("tool_choice", "auto, which is the same; whether calls are parallel stands beside it"))
    match choice:
        case ToolChoice("none"):
            if disabled is not None:
                losses.append(Loss("parallel_tool_calls", "left out: there are no calls"))
            return Choice("none")
        case ToolChoice("required"):
            return Choice("any", None, disabled)
        case ToolChoice("named"):
            return Choice("tool", choice.name, disabled)
        case ToolChoice():
            return Choice("auto", None, disabled)
    return None if disabled is None else Choice("auto", None, disabled)
