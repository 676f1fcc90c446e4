"""Content blocks as neutral parts."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from polarproxy.wire.bedrock.media import AS_TEXT, KINDS, read_media, under
from polarproxy.wire.bedrock.reading import NO_PLACE, given
from polarproxy.wire.bedrock.shapes import (
    Citations,
    GuardText,
    ReasoningText,
    SearchResult,
    ToolResultBlock,
    ToolUseBlock,
)
from polarproxy.wire.neutral.arguments import from_object
from polarproxy.wire.neutral.request import Media, Part, Text, Thinking, ToolResult, ToolUse
from polarproxy.wire.neutral.seal import unseal

if TYPE_CHECKING:
    from collections.abc import Callable

    import msgspec

    from polarproxy.wire.bedrock.reading import Block, Reader

    _Read: TypeAlias = Callable[[Reader, msgspec.Raw, str], list[Part]]


def read_block(reader: Reader, block: Block, where: str) -> list[Part]:
    """The parts of one block: usually one; none for a cache point or for what is lost."""
    parts: list[Part] = []
    for kind, raw in given(block):
        parts.extend(_read_kind(reader, kind, raw, f"{where}.{kind}"))
    return parts


def _read_kind(reader: Reader, kind: str, raw: msgspec.Raw, where: str) -> list[Part]:
    if kind in KINDS:
        return [*read_media(reader, kind, raw, where)]
    if kind in _READ:
        return _READ[kind](reader, raw, where)
    reader.lose(where, NO_PLACE)
    return []


def _text(reader: Reader, raw: msgspec.Raw, where: str) -> list[Part]:
    return [Text(reader.value(raw, str, where))]


def _cache_point(_reader: Reader, _raw: msgspec.Raw, _where: str) -> list[Part]:
    return []


def _guarded(reader: Reader, raw: msgspec.Raw, where: str) -> list[Part]:
    parts: list[Part] = []
    for kind, inner in reader.union(raw, where):
        if kind == "text":
            parts.append(Text(reader.read(inner, GuardText, f"{where}.text").text))
        else:
            parts.extend(_read_kind(reader, kind, inner, f"{where}.{kind}"))
    return parts


def _cited(reader: Reader, raw: msgspec.Raw, where: str) -> list[Part]:
    return [Text(part.text) for part in reader.read(raw, Citations, where).content]


def _search_result(reader: Reader, raw: msgspec.Raw, where: str) -> list[Part]:
    found = reader.read(raw, SearchResult, where)
    reader.lose(where, f"a search result; {AS_TEXT}")
    return [*under((found.title, found.source), (part.text for part in found.content))]


def _thinking(text: str, signature: str | None) -> list[Part]:
    """Reasoning as it came back; a signature of ours holds the text itself, and is believed."""
    own = unseal(signature) if signature else None
    if own is not None:
        return [Thinking(own)]
    return [Thinking(text, signature or None)] if text or signature else []


def _reasoning(reader: Reader, raw: msgspec.Raw, where: str) -> list[Part]:
    parts: list[Part] = []
    for kind, inner in reader.union(raw, where):
        at = f"{where}.{kind}"
        match kind:
            case "reasoningText":
                block = reader.read(inner, ReasoningText, at)
                parts.extend(_thinking(block.text, block.signature))
            case "redactedContent":
                parts.extend(_thinking("", reader.value(inner, str, at)))
            case _:
                reader.lose(at, NO_PLACE)
    return parts


def _tool_use(reader: Reader, raw: msgspec.Raw, where: str) -> list[Part]:
    block = reader.read(raw, ToolUseBlock, where)
    return [ToolUse(block.tool_use_id, block.name, from_object(bytes(block.input)))]


def _tool_result(reader: Reader, raw: msgspec.Raw, where: str) -> list[Part]:
    block = reader.read(raw, ToolResultBlock, where)
    content: list[Text | Media] = []
    for place, item in enumerate(block.content):
        at = f"{where}.content[{place}]"
        for kind, inner in given(item):
            if kind == "json":
                content.append(Text(bytes(inner).decode()))
                continue
            for part in _read_kind(reader, kind, inner, f"{at}.{kind}"):
                if isinstance(part, (Text, Media)):
                    content.append(part)
                else:
                    reader.lose(f"{at}.{kind}", "neither text nor a medium, in the result of a tool; left out")
    return [ToolResult(block.tool_use_id, tuple(content), block.status == "error")]


_READ: dict[str, _Read] = {
    "text": _text,
    "cachePoint": _cache_point,
    "guardContent": _guarded,
    "citationsContent": _cited,
    "searchResult": _search_result,
    "reasoningContent": _reasoning,
    "toolUse": _tool_use,
    "toolResult": _tool_result,
}
"""Each kind of block that has a reader of its own."""
