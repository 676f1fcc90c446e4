"""What a request of any dialect looks like, without its prose: how it is told later what the request was for.

Lenient throughout: what cannot be read says nothing, and is the engine's to refuse. The members of the dialects do not
clash, so one reader serves them all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from polarproxy.errors import UNREADABLE
from polarproxy.model import FAR_ENOUGH, Shape, opening
from polarproxy.wire.message_list import NULL, Ends, Message, read_messages

if TYPE_CHECKING:
    from collections.abc import Mapping

_MOST_TOOLS = 512
_LONGEST_NAME = 128
_HEAD_ROLES = frozenset({"system", "developer"})
_OWN_HEADER = "x-anthropic-billing-header"
"""A block of Claude Code that only looks like a header, and changes from conversation to conversation."""
_LONG = 4096
"""Bytes of a text as JSON in which its opening stands, nearly always."""

_QUOTE = ord('"')
_object = msgspec.json.Decoder(dict[str, msgspec.Raw])
_list = msgspec.json.Decoder(list[msgspec.Raw])


class _Function(msgspec.Struct):
    name: str | None = None


class _Tool(msgspec.Struct, rename="camel"):
    name: str | None = None
    type: str | None = None
    function: _Function | None = None
    function_declarations: list[_Function] | None = None
    tool_spec: _Function | None = None


_tool = msgspec.json.Decoder(_Tool)
_tool_list = msgspec.json.Decoder(list[_Tool])


def read_shape(fields: Mapping[str, msgspec.Raw], ends: Ends | None = None) -> Shape:
    """The shape of a request by the members of its body, in the client's dialect. `ends`: of its messages, where they were
    read already."""
    ends = ends or Ends.of(_messages(fields))
    system = next((fields[name] for name in ("system", "instructions", "systemInstruction") if name in fields), None)
    head = _texts(_value(system)) if system is not None else _head_of(ends.first) if ends.first else []
    last = _texts(_content(ends.last)) if ends.last else []
    return Shape(
        messages=ends.count,
        tools=tuple(name[:_LONGEST_NAME] for name in _tools(fields)[:_MOST_TOOLS]),
        wants_json=_wants_json(fields),
        system_opening=next((opening(text) for text in head if not text.startswith(_OWN_HEADER)), None),
        last_opening=opening(last[-1]) if last else None,
    )


def shape_of(body: bytes) -> Shape | None:
    """The shape of a request body; None when it is not a JSON object."""
    fields = _read(_object, body)
    return None if fields is None else read_shape(fields)


def _read(decoder: msgspec.json.Decoder[Any], raw: bytes | msgspec.Raw) -> Any:
    try:
        return decoder.decode(raw)
    except UNREADABLE:
        return None


def _value(raw: msgspec.Raw) -> Any:
    try:
        return msgspec.json.decode(raw)
    except UNREADABLE:
        return None


def _messages(fields: Mapping[str, msgspec.Raw]) -> list[Message]:
    return read_messages(next((fields[name] for name in ("messages", "input", "contents") if name in fields), None))


def _content(message: Message) -> Any:
    """Of a long text, only as much as its opening needs."""
    said, size = message.content, len(memoryview(message.content))
    content = _beginning(said) if size > _LONG and memoryview(said)[0] == _QUOTE else _value(said)
    return content or _value(message.parts) or _value(message.output)


def _beginning(text: msgspec.Raw) -> Any:
    """Of a JSON text, what `opening` looks at. A space is part of no escape and of no longer character."""
    head = bytes(memoryview(text)[:_LONG])
    begun = _value(msgspec.Raw(head[: head.rfind(b" ")] + b'"')) if b" " in head else None
    return begun if begun is not None and len(begun) >= FAR_ENOUGH else _value(text)


def _head_of(first: Message) -> list[str]:
    """What a first message says that stands for a system prompt."""
    role = _value(first.role)
    return _texts(_content(first)) if isinstance(role, str) and role in _HEAD_ROLES else []


def _texts(content: Any) -> list[str]:
    """The texts of a content, in order."""
    if isinstance(content, str):
        return [content]
    if isinstance(content, dict):
        content = content.get("parts") or [content]
    if not isinstance(content, list):
        return []
    parts = (part.get("text") if isinstance(part, dict) else part for part in content)
    return [text for text in parts if isinstance(text, str) and text.strip()]


def _tools(fields: Mapping[str, msgspec.Raw]) -> list[str]:
    """The names in the order in which they are offered; of a tool of the provider's own, its type or member."""
    raw = fields.get("tools")
    if raw is None and "toolConfig" in fields:
        raw = (_read(_object, fields["toolConfig"]) or {}).get("tools")
    if raw is None:
        return []
    read: list[_Tool] | None = _read(_tool_list, raw)
    names = [_names(tool) for tool in read or ()]
    if read is not None and all(names):
        return [name for each in names for name in each]
    return [name for each in _read(_list, raw) or () for name in _names_of(each)]


def _names(tool: _Tool) -> list[str]:
    if tool.function_declarations is not None:
        return [each.name for each in tool.function_declarations if each.name]
    inner = tool.function or tool.tool_spec
    named = tool.name or (inner.name if inner else None) or tool.type
    return [named] if named else []


def _names_of(raw: msgspec.Raw) -> list[str]:
    """The same of a tool that is written in another way than the rest, or has no name."""
    tool: _Tool | None = _read(_tool, raw)
    return (_names(tool) if tool else []) or list(_read(_object, raw) or ())[:1]


def _wants_json(fields: Mapping[str, msgspec.Raw]) -> bool:
    """Whether the answer is to be JSON, in the words of any dialect."""
    if "response_format" in fields:
        return _type_of(fields["response_format"]) not in (None, "text")
    for outer, inner in (("text", "format"), ("output_config", "format")):
        within = _read(_object, fields[outer]) if outer in fields else None
        if within and inner in within:
            return _type_of(within[inner]) not in (None, "text")
    config = _read(_object, fields["generationConfig"]) if "generationConfig" in fields else None
    if not config:
        return False
    named = any(name in config for name in ("responseSchema", "responseJsonSchema"))
    return named or _value(config.get("responseMimeType", NULL)) == "application/json"


def _type_of(raw: msgspec.Raw) -> Any:
    value = _value(raw)
    return value.get("type") if isinstance(value, dict) else None
