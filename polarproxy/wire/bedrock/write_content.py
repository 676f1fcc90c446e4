"""Neutral parts as content blocks."""

from __future__ import annotations

import binascii
from base64 import b64decode
from typing import TYPE_CHECKING

import msgspec

from polarproxy.model import Loss
from polarproxy.wire.bedrock.media import write_media
from polarproxy.wire.bedrock.shapes import ReasoningText, ToolResultBlock, ToolUseBlock, raw_json
from polarproxy.wire.neutral.arguments import MALFORMED, to_object
from polarproxy.wire.neutral.request import Media, Part, Text, Thinking, ToolResult, ToolUse
from polarproxy.wire.neutral.seal import seal

if TYPE_CHECKING:
    from collections.abc import Iterable

    from polarproxy.wire.bedrock.reading import Block

_RESULT_KINDS = {"text", "image", "document", "video"}


def write_blocks(parts: Iterable[Part], where: str, losses: list[Loss]) -> list[Block]:
    """The blocks of parts, in their order; what this API has no block for is left out and noted."""
    blocks = [write_block(part, f"{where}[{place}]", losses) for place, part in enumerate(parts)]
    return [block for block in blocks if block]


def write_block(part: Part, where: str, losses: list[Loss]) -> Block:
    """The block of one part; empty when there is none."""
    match part:
        case Text():
            return {"text": raw_json(part.text)}
        case Thinking():
            return {"reasoningContent": raw_json(_reasoning(part))}
        case Media():
            return {kind: raw_json(block) for kind, block in write_media(part, where, losses).items()}
        case ToolUse():
            given, well_formed = to_object(part.arguments)
            if not well_formed:
                losses.append(Loss(f"{where}.toolUse.input", MALFORMED))
            return {"toolUse": raw_json(ToolUseBlock(part.id, part.name, msgspec.Raw(given)))}
        case ToolResult():
            return {"toolResult": raw_json(_tool_result(part, f"{where}.toolResult", losses))}


def _reasoning(part: Thinking) -> dict[str, str | ReasoningText]:
    if not part.text and part.seal is not None and _is_base64(part.seal):
        return {"redactedContent": part.seal}
    return {"reasoningText": ReasoningText(part.text, seal(part.text) if part.seal is None else part.seal)}


def _is_base64(text: str) -> bool:
    try:
        b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return False
    return True


def _tool_result(part: ToolResult, where: str, losses: list[Loss]) -> ToolResultBlock:
    content = []
    for place, block in enumerate(write_blocks(part.content, f"{where}.content", losses)):
        if _RESULT_KINDS.issuperset(block):
            content.append(block)
        else:
            losses.append(Loss(f"{where}.content[{place}]", "no kind of result of a tool in this API; left out"))
    return ToolResultBlock(part.id, content, "error" if part.is_error else None)
