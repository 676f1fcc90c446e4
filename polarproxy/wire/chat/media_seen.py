"""Whether a chat request holds anything that its token ids do not tell: images, sounds, films, documents, embeddings.

Read as vLLM reads it, not as this dialect is documented: whatever is not known to be text is none.
Source: vLLM 0.32, `has_non_text_content`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from polarproxy.errors import UNREADABLE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from polarproxy.wire.message_list import Message

_TEXTS = frozenset(
    f'"{name}"'.encode() for name in ("text", "input_text", "output_text", "refusal", "thinking", "tool_reference")
)
"""The types, as JSON, of parts that are rendered into tokens."""
_MEDIA = frozenset(
    (
        "audio_embeds",
        "audio_url",
        "file",
        "image_embeds",
        "image_pil",
        "image_url",
        "input_audio",
        "input_image",
        "prompt_embeds",
        "video_embeds",
        "video_url",
    )
)
"""Members of a part that say what it is, whatever its type is."""


_BRACKET = ord("[")
_parts = msgspec.json.Decoder(list[dict[str, msgspec.Raw] | str])


def holds_media(messages: Sequence[Message]) -> bool:
    """Whether any of these messages does; a content that cannot be read, which the engine refuses, holds none."""
    return any(_holds(message.content) for message in messages if memoryview(message.content)[0] == _BRACKET)


def _holds(content: msgspec.Raw) -> bool:
    try:
        return any(map(_is_media, _parts.decode(content)))
    except UNREADABLE:
        return False


def _is_media(part: dict[str, msgspec.Raw] | str) -> bool:
    if isinstance(part, str):
        return False
    kind = part.get("type")
    return (kind is not None and bytes(kind) not in _TEXTS) or not _MEDIA.isdisjoint(part)
