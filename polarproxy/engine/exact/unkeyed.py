"""What a chat template may read of a request, and what no turn is recognised by: rare members that are refused instead.

Source: vLLM 0.32, which hands `defer_loading` of tools, `tools` and `task` of messages and parts of the type
`tool_reference` to the template.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from polarproxy.errors import UNREADABLE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from polarproxy.engine.exact.conversation import Settings

_NULL = msgspec.Raw(b"null")


class _Function(msgspec.Struct):
    defer_loading: msgspec.Raw = _NULL


class _Tool(msgspec.Struct):
    defer_loading: msgspec.Raw = _NULL
    function: _Function = msgspec.field(default_factory=_Function)


class _Message(msgspec.Struct):
    content: msgspec.Raw = _NULL
    task: msgspec.Raw = _NULL
    tools: msgspec.Raw = _NULL


class _Part(msgspec.Struct):
    type: str = "text"


_tools = msgspec.json.Decoder(list[_Tool])
_message = msgspec.json.Decoder(_Message)
_parts = msgspec.json.Decoder(list[_Part | str])


def unkeyed(fields: Settings, messages: Sequence[msgspec.Raw]) -> str | None:
    """The first such member of a chat request. None: it has none that can be read."""
    try:
        return next(_found(fields, messages), None)
    except UNREADABLE:
        return None


def _found(fields: Settings, messages: Sequence[msgspec.Raw]) -> Iterator[str]:
    # Their names are looked for as bytes first: hardly a request holds one.
    tools = fields.get("tools", _NULL)
    if b'defer_loading"' in bytes(tools):
        for tool in _tools.decode(tools):
            if _given(tool.defer_loading) or _given(tool.function.defer_loading):
                yield "`defer_loading` of a tool"
    for raw in messages:
        held = bytes(raw)
        if b'task"' in held or b'tools"' in held or b'tool_reference"' in held:
            yield from _of_message(_message.decode(raw))


def _of_message(message: _Message) -> Iterator[str]:
    if _given(message.task):
        yield "`task` of a message"
    if _given(message.tools):
        yield "`tools` of a message"
    if bytes(message.content).startswith(b"["):
        parts = _parts.decode(message.content)
        if any(isinstance(part, _Part) and part.type == "tool_reference" for part in parts):
            yield "a part of the type `tool_reference`"


def _given(raw: msgspec.Raw) -> bool:
    return bytes(raw) != b"null"
