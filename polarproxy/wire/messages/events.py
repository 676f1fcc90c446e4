"""The events of a stream as they are written. Source: Anthropic documentation, "Streaming messages"."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import msgspec

if TYPE_CHECKING:
    from polarproxy.wire.messages.blocks import Block
    from polarproxy.wire.messages.reply import Message
    from polarproxy.wire.messages.usage import TokenCounts


class TextDelta(msgspec.Struct, tag="text_delta"):
    text: str


class ThinkingDelta(msgspec.Struct, tag="thinking_delta"):
    thinking: str


class SignatureDelta(msgspec.Struct, tag="signature_delta"):
    signature: str


class InputDelta(msgspec.Struct, tag="input_json_delta"):
    partial_json: str


Delta: TypeAlias = TextDelta | ThinkingDelta | SignatureDelta | InputDelta


class MessageStart(msgspec.Struct, tag="message_start"):
    message: Message


class BlockStart(msgspec.Struct, tag="content_block_start"):
    index: int
    content_block: Block


class BlockDelta(msgspec.Struct, tag="content_block_delta"):
    index: int
    delta: Delta


class BlockStop(msgspec.Struct, tag="content_block_stop"):
    index: int


class Stop(msgspec.Struct):
    stop_reason: str
    stop_sequence: str | None


class MessageDelta(msgspec.Struct, tag="message_delta"):
    delta: Stop
    usage: TokenCounts


class MessageStop(msgspec.Struct, tag="message_stop"):
    pass


Event: TypeAlias = MessageStart | BlockStart | BlockDelta | BlockStop | MessageDelta | MessageStop


def encode(event: Event) -> bytes:
    """An event as it goes over the wire; its name is its type."""
    name = type(event).__struct_config__.tag
    assert isinstance(name, str)
    return b"event: " + name.encode() + b"\ndata: " + msgspec.json.encode(event) + b"\n\n"
