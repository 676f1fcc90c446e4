"""How freely the model may choose a tool: `tool_choice`, both ways.

Source: OpenAI API reference, Responses, `tool_choice`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

from polarproxy.model import Loss
from polarproxy.wire.neutral.reading import read
from polarproxy.wire.neutral.request import Tool, ToolChoice

if TYPE_CHECKING:
    from collections.abc import Sequence

    from polarproxy.wire.responses.tools import ToolNames


class _Named(msgspec.Struct):
    type: str
    name: str | None = None
    namespace: str | None = None
    mode: Literal["auto", "required"] = "auto"
    tools: list[_Named] | None = None


_choice = msgspec.json.Decoder(Literal["auto", "none", "required"] | _Named)


def read_choice(
    raw: bytes, tools: Sequence[Tool], names: ToolNames, losses: list[Loss]
) -> tuple[ToolChoice | None, tuple[Tool, ...]]:
    """The choice, and the tools that it leaves; raises `BadRequest`."""
    choice = read(_choice, raw, "tool_choice")
    if isinstance(choice, str):
        return ToolChoice(choice), tuple(tools)
    if choice.type == "allowed_tools":
        allowed = [_name(tool, names) for tool in choice.tools or ()]
        left = tuple(tool for tool in tools if tool.name in allowed)
        losses.append(Loss("tool_choice.tools", "the engine is told of these tools only; the others are left out"))
        return ToolChoice(choice.mode), left
    if (name := _name(choice, names)) is not None:
        return ToolChoice("named", name), tuple(tools)
    losses.append(Loss("tool_choice", f"names a tool of type {choice.type!r}, which is left out; the model may choose"))
    return None, tuple(tools)


def _name(choice: _Named, names: ToolNames) -> str | None:
    """The engine's name of the tool; None when it is none that the engine knows."""
    if choice.type == "local_shell":
        return names.shell()
    if choice.type in ("function", "custom") and choice.name:
        return names.name(choice.name, choice.namespace)
    return None


class _Function(msgspec.Struct, tag_field="type", tag="function"):
    name: str


class _Custom(msgspec.Struct, tag_field="type", tag="custom"):
    name: str


class _LocalShell(msgspec.Struct, tag_field="type", tag="local_shell"):
    pass


def write_choice(choice: ToolChoice, names: ToolNames) -> str | _Function | _Custom | _LocalShell:
    """The choice as a client says it."""
    if choice.mode != "named" or choice.name is None:
        return choice.mode
    tool = names.tool(choice.name)
    own = tool.own_name or tool.name
    match tool.kind:
        case "custom":
            return _Custom(own)
        case "local_shell":
            return _LocalShell()
    return _Function(own)
