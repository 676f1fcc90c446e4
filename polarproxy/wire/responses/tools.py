"""Declarations of tools, both ways, and by which name the engine knows each of them.

Source: OpenAI API reference, Responses, `tools`; types `function`, `custom`, `namespace`, `local_shell`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from polarproxy.model import Loss
from polarproxy.wire.neutral.free_names import FreeNames
from polarproxy.wire.neutral.reading import read
from polarproxy.wire.neutral.request import Tool
from polarproxy.wire.responses import freeform
from polarproxy.wire.responses.calls import SHELL_PARAMETERS
from polarproxy.wire.responses.reading import NONE, given, members

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_UNFIT = re.compile(r"[^A-Za-z0-9_-]")
_SHELL = "local_shell"
_SHELL_DESCRIPTION = "Runs a program on the local machine and gives its output."


class _Format(msgspec.Struct):
    type: str | None = None
    syntax: str | None = None
    definition: str | None = None


class _Declared(msgspec.Struct):
    type: str = "function"
    name: str = ""
    description: str | None = None
    parameters: msgspec.Raw = NONE
    strict: bool | None = None
    format: _Format | None = None
    tools: list[msgspec.Raw] | None = None


_declared = msgspec.json.Decoder(_Declared)
_KNOWN = {
    "function": ("type", "name", "description", "parameters", "strict"),
    "custom": ("type", "name", "description", "format"),
    _SHELL: ("type",),
}


class ToolNames:
    """By which name the engine knows each tool of a client, and the other way round."""

    def __init__(self, tools: Sequence[Tool]) -> None:
        self._tools = {tool.name: tool for tool in tools}
        self._names = {(tool.namespace, tool.own_name or tool.name): tool.name for tool in tools}
        self._spaced: dict[str, list[str]] = {}
        """The tools of namespaces by their own names."""
        for (namespace, own), name in self._names.items():
            if namespace is not None:
                self._spaced.setdefault(own, []).append(name)
        self._shell = next((tool.name for tool in tools if tool.kind == _SHELL), _SHELL)

    def tool(self, name: str) -> Tool:
        """The tool of a name that the engine said; a function of that name when none was declared."""
        return self._tools.get(name) or Tool(name)

    def name(self, own: str, namespace: str | None) -> str:
        """The engine's name for what a client calls so; a client may leave the namespace out where that is clear."""
        if name := self._names.get((namespace, own)):
            return name
        if namespace is None:
            found = self._spaced.get(own, ())
            return found[0] if len(found) == 1 else _flat(None, own)
        return _flat(namespace, own)

    def shell(self) -> str:
        """The engine's name for the local shell."""
        return self._shell


def _flat(namespace: str | None, own: str) -> str:
    return _UNFIT.sub("_", own if namespace is None else f"{namespace}__{own}")


_Key: TypeAlias = tuple[str, str | None, str]
"""What tells a client's tools apart: kind, namespace, own name."""


@dataclass(slots=True)
class ToolReader:
    """Reads declarations into tools with names of their own; of several for one tool the first counts."""

    losses: list[Loss]
    _tools: dict[_Key, Tool] = field(default_factory=dict)
    _names: FreeNames = field(default_factory=FreeNames)

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The tools so far."""
        return tuple(self._tools.values())

    def read(self, declared: Sequence[msgspec.Raw], where: str, namespace: str | None = None) -> None:
        """Adds the tools of a list; raises `BadRequest`."""
        for place, raw in enumerate(declared):
            here = f"{where}[{place}]"
            tool = read(_declared, raw, here)
            match tool.type:
                case "namespace" if namespace is None:
                    if tool.description:
                        self.losses.append(Loss(here, "the description of a namespace; left out, its tools are kept"))
                    self.read(tool.tools or [], f"{here}.tools", tool.name)
                case "function" | "custom" | "local_shell":
                    self._report_members(raw, tool.type, here)
                    self._add(_tool(tool, namespace), here)
                case _:
                    self.losses.append(Loss(here, f"a tool of type {tool.type!r} that the provider runs; left out"))

    def _report_members(self, raw: msgspec.Raw, kind: str, here: str) -> None:
        said = [name for name, value in members.decode(raw).items() if given(value) not in (None, b"false")]
        self.losses += [
            Loss(f"{here}.{name}", "has no meaning for the engine; left out")
            for name in said
            if name not in _KNOWN[kind]
        ]

    def _add(self, tool: Tool, where: str) -> None:
        own = tool.own_name or tool.name
        key = (tool.kind, tool.namespace, own)
        if (first := self._tools.get(key)) is not None:
            if replace(first, name=tool.name, own_name=tool.own_name) != tool:
                self.losses.append(Loss(where, f"the tool {own!r} was declared otherwise before; left out"))
            return
        name = self._names.take(tool.name)
        self._tools[key] = tool if name == tool.name else replace(tool, name=name, own_name=own)


def _tool(tool: _Declared, namespace: str | None) -> Tool:
    own = _SHELL if tool.type == _SHELL else tool.name
    name = _flat(namespace, own)
    named = Tool(name, tool.description, namespace=namespace, own_name=None if name == own else own, kind=tool.type)
    match tool.type:
        case "custom":
            return replace(named, description=_with_grammar(tool), parameters=freeform.PARAMETERS)
        case "local_shell":
            return replace(named, description=_SHELL_DESCRIPTION, parameters=SHELL_PARAMETERS)
    return replace(named, parameters=given(tool.parameters), strict=tool.strict)


def _with_grammar(tool: _Declared) -> str | None:
    """The description, and the grammar that the input must follow: sampling is not held to it, so the model is told."""
    if tool.format is None or tool.format.definition is None:
        return tool.description
    grammar = f"The input must follow this grammar ({tool.format.syntax}):\n{tool.format.definition}"
    return f"{tool.description}\n\n{grammar}" if tool.description else grammar


class _Function(msgspec.Struct, tag_field="type", tag="function"):
    name: str
    description: str | None
    parameters: msgspec.Raw
    strict: bool | None


class _Custom(msgspec.Struct, tag_field="type", tag="custom"):
    name: str
    description: str | None


class _LocalShell(msgspec.Struct, tag_field="type", tag="local_shell"):
    pass


class _Namespace(msgspec.Struct, tag_field="type", tag="namespace"):
    name: str
    description: str
    tools: list[_Function | _Custom | _LocalShell]


_Written: TypeAlias = _Function | _Custom | _LocalShell | _Namespace


def write_tools(tools: Sequence[Tool]) -> Iterator[_Written]:
    """The tools as a client declares them; neighbours of one namespace share its declaration."""
    for namespace, group in groupby(tools, key=lambda tool: tool.namespace):
        written = [_write(tool) for tool in group]
        if namespace is None:
            yield from written
        else:
            yield _Namespace(namespace, "", written)


def _write(tool: Tool) -> _Function | _Custom | _LocalShell:
    own = tool.own_name or tool.name
    match tool.kind:
        case "custom":
            return _Custom(own, tool.description)
        case "local_shell":
            return _LocalShell()
    return _Function(own, tool.description, msgspec.Raw(tool.parameters or b"null"), tool.strict)
