"""Content blocks as this dialect writes them, in requests and in replies.

Source: Anthropic API reference, "Create a message".
"""

from __future__ import annotations

import msgspec

from polarproxy.wire.neutral.seal import seal


class TextBlock(msgspec.Struct, tag="text"):
    text: str


class ThinkingBlock(msgspec.Struct, tag="thinking"):
    thinking: str
    signature: str


class RedactedThinkingBlock(msgspec.Struct, tag="redacted_thinking"):
    data: str


class ToolUseBlock(msgspec.Struct, tag="tool_use"):
    id: str
    name: str
    input: msgspec.Raw


class Base64Source(msgspec.Struct, tag="base64"):
    media_type: str
    data: str


class UrlSource(msgspec.Struct, tag="url"):
    url: str


class ImageBlock(msgspec.Struct, tag="image"):
    source: Base64Source | UrlSource


class DocumentBlock(msgspec.Struct, tag="document", omit_defaults=True):
    source: Base64Source | UrlSource
    title: str | None = None


class ToolResultBlock(msgspec.Struct, tag="tool_result", omit_defaults=True):
    tool_use_id: str
    content: str | list[TextBlock | ImageBlock | DocumentBlock]
    is_error: bool = False


Block = TextBlock | ThinkingBlock | RedactedThinkingBlock | ToolUseBlock | ImageBlock | DocumentBlock | ToolResultBlock


def thinking_block(text: str, foreign_seal: str | None, shown: bool = True) -> ThinkingBlock | RedactedThinkingBlock:
    """Reasoning with its signature: the one that it came with, else one of ours, from which it can be read again."""
    if foreign_seal is not None and not text:
        return RedactedThinkingBlock(foreign_seal)
    return ThinkingBlock(text if shown else "", seal(text) if foreign_seal is None else foreign_seal)
