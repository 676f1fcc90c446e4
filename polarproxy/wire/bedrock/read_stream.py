"""Streams of ConverseStream as neutral pieces.

For clients and for the laws; the proxy itself only writes streams of this dialect.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from polarproxy.errors import BadReply
from polarproxy.wire.bedrock.eventstream import MessageSplitter
from polarproxy.wire.bedrock.reply import ModelFields, finish_of, usage_of
from polarproxy.wire.bedrock.shapes import Shape, TokenUsage
from polarproxy.wire.neutral.reply import (
    ArgumentsPiece,
    Begin,
    Final,
    Finished,
    Piece,
    TextPiece,
    ThinkingPiece,
    ToolBegin,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from polarproxy.wire.bedrock.eventstream import Message


class _ToolStart(Shape, frozen=True):
    tool_use_id: str
    name: str


class _Start(Shape, frozen=True):
    tool_use: _ToolStart | None = None


class _BlockStart(Shape, frozen=True):
    start: _Start
    content_block_index: int


class _ToolDelta(Shape, frozen=True):
    input: str


class _ReasoningDelta(Shape, frozen=True):
    text: str = ""


class _Delta(Shape, frozen=True):
    text: str = ""
    tool_use: _ToolDelta | None = None
    reasoning_content: _ReasoningDelta | None = None


class _BlockDelta(Shape, frozen=True):
    delta: _Delta
    content_block_index: int


class _MessageStop(Shape, frozen=True):
    stop_reason: str
    additional_model_response_fields: ModelFields | None = None


class _Metadata(Shape, frozen=True):
    usage: TokenUsage | None = None


class _Exception(Shape, frozen=True):
    message: str = ""


@dataclass(slots=True)
class _Reading:
    pieces: list[Piece] = field(default_factory=list)
    calls: dict[int, int] = field(default_factory=dict)
    """Number of the tool call of each block that is one."""
    ended: bool = False

    def take(self, message: Message) -> None:
        if (name := message.headers.get(":exception-type")) is not None:
            raise BadReply(f"{name}: {msgspec.json.decode(message.payload, type=_Exception).message}")
        match message.headers.get(":event-type"):
            case "messageStart":
                self.pieces.append(Begin())
            case "contentBlockStart":
                self._block_start(msgspec.json.decode(message.payload, type=_BlockStart))
            case "contentBlockDelta":
                self._delta(msgspec.json.decode(message.payload, type=_BlockDelta))
            case "messageStop":
                stop = msgspec.json.decode(message.payload, type=_MessageStop)
                fields = stop.additional_model_response_fields
                self.pieces.append(Finished(finish_of(stop.stop_reason), fields.stop_sequence if fields else None))
            case "metadata":
                usage = msgspec.json.decode(message.payload, type=_Metadata).usage
                self.pieces.append(Final(usage_of(usage) if usage else None))
                self.ended = True

    def _block_start(self, event: _BlockStart) -> None:
        if (tool := event.start.tool_use) is not None:
            call = self.calls[event.content_block_index] = len(self.calls)
            self.pieces.append(ToolBegin(call, tool.tool_use_id, tool.name))

    def _delta(self, event: _BlockDelta) -> None:
        delta = event.delta
        if delta.text:
            self.pieces.append(TextPiece(delta.text))
        if delta.reasoning_content is not None and delta.reasoning_content.text:
            self.pieces.append(ThinkingPiece(delta.reasoning_content.text))
        if delta.tool_use is not None and delta.tool_use.input:
            self.pieces.append(ArgumentsPiece(self.calls[event.content_block_index], delta.tool_use.input))


def decode_stream(events: Iterable[bytes]) -> list[Piece]:
    """The pieces of a stream, however its bytes are cut.

    Raises `BadReply` for an exception in the stream, damaged or unreadable bytes, and a stream that does not end.
    """
    splitter, reading = MessageSplitter(), _Reading()
    try:
        for chunk in events:
            for message in splitter.feed(chunk):
                reading.take(message)
    except (msgspec.DecodeError, KeyError) as error:
        raise BadReply(f"an event of the stream cannot be read: {error}") from error
    if splitter.rest() or not reading.ended:
        raise BadReply("the stream broke off before its last event")
    return reading.pieces
