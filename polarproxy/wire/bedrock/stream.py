"""Replies of ConverseStream, piece by piece.

Source: the service model of `bedrock-runtime` (2023-09-30), shape ConverseStreamOutput: `messageStart`; for each block
`contentBlockStart` (of tool calls only), `contentBlockDelta`s and `contentBlockStop`; `messageStop`; `metadata`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from polarproxy.model import Loss
from polarproxy.wire.bedrock.errors import encode_stream_error
from polarproxy.wire.bedrock.eventstream import encode_headers, frame
from polarproxy.wire.bedrock.read_stream import decode_stream as decode_stream
from polarproxy.wire.bedrock.reply import ModelFields, model_fields, stop_reason, token_usage
from polarproxy.wire.bedrock.shapes import Metrics, Shape, TokenUsage
from polarproxy.wire.neutral.reply import (
    ArgumentsPiece,
    Begin,
    Envelope,
    Final,
    Finished,
    Piece,
    TextPiece,
    ThinkingPiece,
    ToolBegin,
)
from polarproxy.wire.neutral.seal import seal

if TYPE_CHECKING:
    from polarproxy.model import Usage


class _Stop(Shape, frozen=True):
    stop_reason: str
    additional_model_response_fields: ModelFields | None = None


class _Metadata(Shape, frozen=True):
    usage: TokenUsage
    metrics: Metrics


_HEADERS = {
    name: encode_headers({":event-type": name, ":content-type": "application/json", ":message-type": "event"})
    for name in (
        "messageStart",
        "contentBlockStart",
        "contentBlockDelta",
        "contentBlockStop",
        "messageStop",
        "metadata",
    )
}


def _event(name: str, payload: Any) -> bytes:
    return frame(_HEADERS[name], msgspec.json.encode(payload))


@dataclass(slots=True)
class Encoder:
    """One reply on its way to one client.

    A block's index names it in every event, so arguments that come after their call was left go to it all the same.
    """

    envelope: Envelope
    losses: list[Loss] = field(default_factory=list)
    _begun: bool = False
    _blocks: int = 0
    """Blocks that were begun; the last of them has the index below."""
    _open: type[Piece] | None = None
    """Which pieces the open block takes. None: no block is open."""
    _thoughts: list[str] = field(default_factory=list)
    """The open block's reasoning, for its signature."""
    _calls: dict[int, int] = field(default_factory=dict)
    """The block of each tool call."""
    _finished: Finished | None = None
    """How the choice ended. None: it has not."""

    def feed(self, piece: Piece) -> bytes:
        """The events of a piece. The whole end of the reply comes with `Final`: an agent acts on `messageStop`."""
        if isinstance(piece, Final):
            return self._start() + self._close() + self._end(piece.usage)
        if not isinstance(piece, Begin) and piece.index:
            if isinstance(piece, Finished):
                self.losses.append(Loss(f"choices[{piece.index}]", "this API gives one answer; left out"))
            return b""
        return self._start() + self._say(piece)

    def error(self, status: int, message: str) -> bytes:
        """The exception that ends the stream."""
        return encode_stream_error(status, message)

    def _say(self, piece: Piece) -> bytes:
        match piece:
            case TextPiece():
                return self._block(TextPiece) + self._delta({"text": piece.text})
            case ThinkingPiece():
                opened = self._block(ThinkingPiece)
                self._thoughts.append(piece.text)
                return opened + self._delta({"reasoningContent": {"text": piece.text}})
            case ToolBegin():
                closed = self._close()
                self._calls[piece.call] = self._blocks
                self._open, self._blocks = ArgumentsPiece, self._blocks + 1
                start = {"toolUse": {"toolUseId": piece.id, "name": piece.name}}
                return closed + _event("contentBlockStart", {"start": start, "contentBlockIndex": self._blocks - 1})
            case ArgumentsPiece():
                return self._delta({"toolUse": {"input": piece.text}}, self._calls[piece.call])
            case Finished():
                self._finished = piece
                return self._close()
        return b""

    def _start(self) -> bytes:
        if self._begun:
            return b""
        self._begun = True
        return _event("messageStart", {"role": "assistant"})

    def _block(self, kind: type[Piece]) -> bytes:
        """Makes a block of a kind the open one. Blocks of text and reasoning have no event of their beginning."""
        if self._open is kind:
            return b""
        closed = self._close()
        self._open, self._blocks = kind, self._blocks + 1
        return closed

    def _close(self) -> bytes:
        if self._open is None:
            return b""
        signed = b""
        if self._open is ThinkingPiece:
            signed = self._delta({"reasoningContent": {"signature": seal("".join(self._thoughts))}})
            self._thoughts.clear()
        self._open = None
        return signed + _event("contentBlockStop", {"contentBlockIndex": self._blocks - 1})

    def _delta(self, delta: dict[str, Any], block: int | None = None) -> bytes:
        index = self._blocks - 1 if block is None else block
        return _event("contentBlockDelta", {"delta": delta, "contentBlockIndex": index})

    def _end(self, usage: Usage | None) -> bytes:
        ended = self._finished or Finished("abort")
        stop = _Stop(stop_reason(ended.finish), model_fields(ended.stop_sequence))
        metadata = _Metadata(token_usage(usage, self.losses), Metrics(self.envelope.elapsed_ms()))
        return _event("messageStop", stop) + _event("metadata", metadata)
