"""From `tools` and `toolConfig` to tools and how freely they may be chosen."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from polarproxy.errors import BadRequest
from polarproxy.wire.gemini.schema import json_schema
from polarproxy.wire.neutral.free_names import FreeNames
from polarproxy.wire.neutral.request import Tool, ToolChoice

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from polarproxy.wire.gemini.findings import Findings
    from polarproxy.wire.gemini.members import Members

_UNFIT = re.compile(r"[^A-Za-z0-9_-]")


def engine_name(name: str) -> str:
    """A name as the engine takes it; this API also allows `.` and `:`."""
    return _UNFIT.sub("_", name) or "_"


def known_as(tools: Sequence[Tool]) -> dict[str, str]:
    """The engine's name of each tool, by the client's."""
    return {tool.own_name or tool.name: tool.name for tool in tools}


def own_names(tools: Sequence[Tool]) -> dict[str, str]:
    """The name that a client of this API sees of each tool, by the engine's."""
    return {tool.name: tool.own_name for tool in tools if tool.own_name and tool.namespace is None}


def read_tools(tools: Sequence[Members], findings: Findings) -> tuple[Tool, ...]:
    """The declared functions; the tools that only Google runs are left out."""
    read: dict[str, Tool] = {}
    names = FreeNames()
    for entry in tools:
        for function in entry.messages("functionDeclarations") or ():
            own = function.text("name")
            if not own:
                raise BadRequest(f"{function.at('name')} is missing")
            if own in read:
                findings.lose(function.where, f"the function {own!r} was declared before; left out")
                continue
            read[own] = _tool(function, names.take(engine_name(own)), own, findings)
        for kind, _ in entry.rest():
            findings.lose(entry.at(kind), "only Google's own service runs this tool; left out")
    return tuple(read.values())


def _tool(function: Members, name: str, own: str, findings: Findings) -> Tool:
    schema, plain = function.raw("parameters"), function.raw("parametersJsonSchema")
    given = schema if plain is None else plain
    where = function.at("parameters" if plain is None else "parametersJsonSchema")
    tool = Tool(
        name=name,
        description=function.text("description"),
        parameters=None if given is None else json_schema(given, where),
        own_name=None if own == name else own,
    )
    findings.lose_rest(function)
    return tool


def read_tool_config(config: Members | None, names: Mapping[str, str], findings: Findings) -> ToolChoice | None:
    """`toolConfig`. None: it says nothing about the choice of functions."""
    if config is None:
        return None
    calling = config.message("functionCallingConfig")
    findings.keep_rest(config)
    if calling is None:
        return None
    mode, allowed = (calling.text("mode") or "").upper(), calling.texts("allowedFunctionNames") or []
    findings.keep_rest(calling)
    return _choice(calling, mode, [names.get(name) or engine_name(name) for name in allowed], findings)


def _choice(calling: Members, mode: str, allowed: list[str], findings: Findings) -> ToolChoice | None:
    if mode == "ANY" and len(allowed) == 1:
        return ToolChoice("named", allowed[0])
    if allowed:
        findings.lose(calling.at("allowedFunctionNames"), "the engine takes one name or none; all tools are allowed")
    match mode:
        case "ANY":
            return ToolChoice("required")
        case "NONE":
            return ToolChoice("none")
        case "AUTO":
            return ToolChoice("auto")
        case "VALIDATED":
            findings.lose(calling.at("mode"), "calls are not held to their schemas; taken for AUTO")
            return ToolChoice("auto")
        case "" | "MODE_UNSPECIFIED":
            return None
    findings.lose(calling.at("mode"), f"the mode {mode!r} is not of this API; left out")
    return None
