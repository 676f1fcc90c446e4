"""Content blocks of a request, as parts of a neutral message. What is left out or rewritten is reported."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polarproxy.wire.messages.media import read_document, read_image, read_search_result
from polarproxy.wire.messages.members import FLAG, TEXT, TEXT_OR_RAWS, Members, Reading
from polarproxy.wire.neutral.arguments import from_object
from polarproxy.wire.neutral.request import Media, Part, Text, Thinking, ToolResult, ToolUse
from polarproxy.wire.neutral.seal import unseal

if TYPE_CHECKING:
    import msgspec

_BILLING = "x-anthropic-billing-header:"
"""Claude Code begins its system prompt with a line of this name. It says nothing to the model, and it differs for each
first prompt, sub-agent and compaction, so that no two conversations would share a prefix."""


def read_blocks(members: Members, name: str, reading: Reading) -> tuple[Part, ...] | None:
    """The parts of a member that is a string or a list of blocks. None: absent."""
    content = members.get(name, TEXT_OR_RAWS)
    if content is None:
        return None
    if isinstance(content, str):
        return (Text(content),) if content else ()
    parts: list[Part] = []
    for place, raw in enumerate(content):
        parts.extend(_read_block(raw, f"{members.path(name)}[{place}]", reading))
    return tuple(parts)


def without_billing(part: Part, where: str, reading: Reading) -> Part | None:
    """A part of a system prompt without Claude Code's billing line; None when nothing else was in it."""
    if not isinstance(part, Text) or not part.text.startswith(_BILLING):
        return part
    reading.lose(where, "the billing line of Claude Code is kept from the engine: it would break every shared prefix")
    rest = part.text.partition("\n")[2]
    return Text(rest) if rest else None


def _read_block(raw: msgspec.Raw, where: str, reading: Reading) -> tuple[Part, ...]:
    block = Members(raw, where)
    block.ignore("cache_control")
    kind = block.need("type", TEXT)
    parts: tuple[Part, ...] | None = _read_content(kind, block, reading)
    if parts is None:
        parts = _read_other(kind, block, reading)
    if parts is None:
        reading.lose(where, f"left out: a block of type {kind} has no counterpart in the engine")
        return ()
    reading.lose_rest(block)
    return parts


def _read_content(kind: str, block: Members, reading: Reading) -> tuple[Text | Media, ...] | None:
    """What messages and results of tools may both hold; None for a block of another type."""
    match kind:
        case "text":
            if block.raw("citations") not in (None, b"[]", b"null"):
                reading.lose(block.path("citations"), "the engine cites nothing")
            return (Text(block.need("text", TEXT)),)
        case "image":
            return read_image(block, reading)
        case "document":
            return read_document(block, reading)
        case "search_result":
            return read_search_result(block, reading)
        case "tool_reference":
            name = block.need("tool_name", TEXT)
            reading.loaded.add(name)
            reading.removed.discard(name)
            reading.lose(block.where, f"a reference to the tool {name}, written into the prompt as plain text")
            return (Text(f"The tool {name} is now available.\n"),)
    return None


def _read_other(kind: str, block: Members, reading: Reading) -> tuple[Part, ...] | None:
    match kind:
        case "thinking":
            return (_read_thinking(block),)
        case "redacted_thinking":
            data = block.need("data", TEXT)
            text = unseal(data)
            return (Thinking("", data) if text is None else Thinking(text),)
        case "tool_use":
            block.ignore("caller")
            arguments = from_object(block.need_json_object("input"))
            return (ToolUse(block.need("id", TEXT), block.need("name", TEXT), arguments),)
        case "tool_result":
            return (_read_result(block, reading),)
        case "tool_addition" | "tool_removal":
            _change_tools(kind == "tool_addition", block.need_object("tool"), reading)
            return ()
    return None


def _read_thinking(block: Members) -> Thinking:
    signature = block.get("signature", TEXT) or None
    text = block.get("thinking", TEXT) or ""
    if signature is None:
        return Thinking(text)
    ours = unseal(signature)
    return Thinking(text, signature) if ours is None else Thinking(ours)


def _read_result(block: Members, reading: Reading) -> ToolResult:
    content: list[Text | Media] = []
    for part in read_blocks(block, "content", reading) or ():
        if isinstance(part, (Text, Media)):
            content.append(part)
        else:
            reading.lose(block.path("content"), "left out: a result of a tool holds text and media only")
    return ToolResult(block.need("tool_use_id", TEXT), tuple(content), block.get("is_error", FLAG) or False)


def _change_tools(addition: bool, tool: Members, reading: Reading) -> None:
    """Notes a change of the tools in mid-conversation; the engine is told the tools in effect at the end."""
    kind = tool.need("type", TEXT)
    if kind == "tool_definition" and addition:
        definition = tool.need_object("definition")
        reading.defined.append(definition)
        name = definition.need("name", TEXT)
    elif kind == "tool_reference":
        name = tool.need("name", TEXT)
    else:
        reading.lose(tool.where, f"left out: a change of tools by {kind}")
        return
    if addition:
        reading.loaded.add(name)
        reading.removed.discard(name)
    else:
        reading.removed.add(name)
        reading.loaded.discard(name)
