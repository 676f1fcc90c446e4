"""Tools and how freely one may be chosen, both ways."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from polarproxy.model import Loss
from polarproxy.wire.bedrock.reading import NO_PLACE, Block
from polarproxy.wire.bedrock.shapes import Shape, raw_json
from polarproxy.wire.neutral.reading import is_given
from polarproxy.wire.neutral.request import Tool, ToolChoice

if TYPE_CHECKING:
    from collections.abc import Sequence

    from polarproxy.wire.bedrock.reading import Reader

_EMPTY = msgspec.Raw(b"{}")
_NOTHING = b'{"type":"object","properties":{}}'
"""The schema of a tool that declares no parameters: the API wants one."""


class ToolConfig(Shape, frozen=True):
    """`toolConfig`."""

    tools: tuple[Block, ...] = ()
    tool_choice: Block | None = None


class _Spec(Shape, frozen=True):
    name: str
    input_schema: Block
    description: str | None = None
    strict: bool | None = None


class _Named(Shape, frozen=True):
    name: str


def read_tools(reader: Reader, config: ToolConfig, where: str) -> tuple[Tool, ...]:
    """The functions among the tools; other kinds are lost."""
    tools: dict[str, Tool] = {}
    for place, block in enumerate(config.tools):
        for kind, raw in block.items():
            at = f"{where}.tools[{place}].{kind}"
            if kind == "toolSpec":
                tool = _read_tool(reader, raw, at)
                if tool.name in tools:
                    reader.lose(at, f"a second tool of the name {tool.name!r}; left out")
                tools.setdefault(tool.name, tool)
            elif kind != "cachePoint" and is_given(raw):
                reader.lose(at, NO_PLACE)
    return tuple(tools.values())


def _read_tool(reader: Reader, raw: msgspec.Raw, where: str) -> Tool:
    spec = reader.read(raw, _Spec, where)
    schema = spec.input_schema.get("json", msgspec.Raw())
    return Tool(spec.name, spec.description, bytes(schema) if is_given(schema) else None, spec.strict)


def read_choice(reader: Reader, config: ToolConfig, where: str) -> ToolChoice | None:
    """How a tool is chosen; None when the client did not say."""
    for kind, raw in (config.tool_choice or {}).items():
        if not is_given(raw):
            continue
        match kind:
            case "auto":
                return ToolChoice("auto")
            case "any":
                return ToolChoice("required")
            case "tool":
                return ToolChoice("named", reader.read(raw, _Named, f"{where}.toolChoice.tool").name)
            case _:
                reader.lose(f"{where}.toolChoice.{kind}", NO_PLACE)
    return None


def write_tools(tools: Sequence[Tool], choice: ToolChoice | None, losses: list[Loss]) -> ToolConfig | None:
    """`toolConfig`; None when there is nothing to say."""
    chosen = _write_choice(choice, losses)
    if not tools and chosen is None:
        return None
    for place, tool in enumerate(tools):
        if tool.kind != "function" or tool.namespace is not None:
            losses.append(Loss(f"tools[{place}]", f"sent as the function {tool.name!r}: this API has no other kind"))
    return ToolConfig(tuple({"toolSpec": raw_json(_write_tool(tool))} for tool in tools), chosen)


def _write_tool(tool: Tool) -> _Spec:
    return _Spec(tool.name, {"json": msgspec.Raw(tool.parameters or _NOTHING)}, tool.description, tool.strict)


def _write_choice(choice: ToolChoice | None, losses: list[Loss]) -> Block | None:
    match choice:
        case None:
            return None
        case ToolChoice("auto"):
            return {"auto": _EMPTY}
        case ToolChoice("required"):
            return {"any": _EMPTY}
        case ToolChoice("named", str(name)):
            return {"tool": raw_json(_Named(name))}
        case _:
            losses.append(Loss("tool_choice", f"this API cannot say {choice.mode!r}; left out"))
            return None
