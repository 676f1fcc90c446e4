"""Neutral messages as this dialect writes them: results of tools stand in a user's message again."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import msgspec

from polarproxy.model import Loss
from polarproxy.wire.messages.blocks import (
    Block,
    DocumentBlock,
    ImageBlock,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
    thinking_block,
)
from polarproxy.wire.messages.media import write_content
from polarproxy.wire.neutral.arguments import MALFORMED, to_object
from polarproxy.wire.neutral.request import Media, Message, Part, Text, Thinking, ToolResult, ToolUse

if TYPE_CHECKING:
    from collections.abc import Sequence

System: TypeAlias = str | list[TextBlock]


class OutMessage(msgspec.Struct):
    """A message as it is written."""

    role: str
    content: str | list[Block]


def write_system(messages: Sequence[Message], losses: list[Loss]) -> tuple[System | None, Sequence[Message]]:
    """The `system` of a body (None: there is none) and the messages that are left: a leading system prompt, unless alone."""
    if len(messages) < 2 or messages[0].role != "system":
        return None, messages
    head = _content(messages[0].parts, "system", losses)
    _lose_name(messages[0], "system", losses)
    if isinstance(head, str):
        return head, messages[1:]
    return [block for block in head if isinstance(block, TextBlock)], messages[1:]


def write_messages(messages: Sequence[Message], losses: list[Loss]) -> list[OutMessage]:
    """The `messages` of a body."""
    written: list[OutMessage] = []
    before: Message | None = None
    for message in messages:
        where = f"messages[{len(written)}]"
        _lose_name(message, where, losses)
        content = _content(message.parts, f"{where}.content", losses)
        # What a user says right after results of tools belongs into the same message: the API takes them as one turn.
        if before is not None and before.role == "tool" and message.role == "user" and message.parts:
            results = written[-1].content
            assert isinstance(results, list)
            results.extend([TextBlock(content)] if isinstance(content, str) else content)
        else:
            written.append(OutMessage(_role(message, where, losses), content))
        before = message
    return written


def _role(message: Message, where: str, losses: list[Loss]) -> str:
    if message.role == "developer":
        losses.append(Loss(where, "the role developer is system in this dialect"))
        return "system"
    return "user" if message.role == "tool" else message.role


def _lose_name(message: Message, where: str, losses: list[Loss]) -> None:
    if message.name is not None:
        losses.append(Loss(where, "messages have no name in this dialect"))


def _content(parts: Sequence[Part], where: str, losses: list[Loss]) -> str | list[Block]:
    if len(parts) == 1 and isinstance(parts[0], Text) and parts[0].text:
        return parts[0].text
    blocks: list[Block] = []
    for place, part in enumerate(parts):
        block = _block(part, f"{where}[{place}]", losses)
        if block is not None:
            blocks.append(block)
    return blocks


def _block(part: Part, where: str, losses: list[Loss]) -> Block | None:
    match part:
        case Thinking():
            return thinking_block(part.text, part.seal)
        case ToolUse():
            given, well_formed = to_object(part.arguments)
            if not well_formed:
                losses.append(Loss(f"{where}.input", MALFORMED))
            return ToolUseBlock(part.id, part.name, msgspec.Raw(given))
        case ToolResult():
            return _result(part, where, losses)
        case Text() | Media():
            return write_content(part, where, losses)


def _result(part: ToolResult, where: str, losses: list[Loss]) -> ToolResultBlock:
    if part.name is not None:
        losses.append(Loss(where, "results of tools have no name in this dialect"))
    content = _content(part.content, f"{where}.content", losses)
    if isinstance(content, str):
        return ToolResultBlock(part.id, content, part.is_error)
    kept = [block for block in content if isinstance(block, (TextBlock, ImageBlock, DocumentBlock))]
    return ToolResultBlock(part.id, kept, part.is_error)
