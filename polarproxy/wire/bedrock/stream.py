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
from polarproxy.wire.neutral.in_order import InOrder, Said
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

    Clients may run a call when its block stops, and some read one block at a time: blocks follow each other, and what comes
    after the first call waits for the end (`InOrder`).
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
    _order: InOrder = field(default_factory=InOrder)
    _others: set[int] = field(default_factory=set)
    """Choices that have no place here, as far as they were seen."""
    _finished: Finished | None = None
    """How the choice ended. None: it has not."""

    def feed(self, piece: Piece) -> bytes:
        """The events of a piece. The whole end of the reply comes with `Final`: an agent acts on `messageStop`."""
        match piece:
            case Begin():
                return self._start()
            case Final():
                return self._start() + self._end(piece.usage)
            case _ if piece.index:
                self._lose_choice(piece.index)
                return b""
            case Finished():
                self._finished = piece
                return self._start()
            case _:
                # Nothing may be said here to fill a silence, and botocore gives up on one: what waits is an empty delta.
                said = self._say(piece) if self._order.feed(piece) else self._delta({"toolUse": {"input": ""}})
                return self._start() + said

    def error(self, status: int, message: str) -> bytes:
        """The exception that ends the stream."""
        return encode_stream_error(status, message)

    def _lose_choice(self, index: int) -> None:
        if index not in self._others:
            self._others.add(index)
            self.losses.append(Loss(f"choices[{index}]", "this API gives one answer; left out"))

    def _say(self, piece: Said) -> bytes:
        match piece:
            case TextPiece():
                return self._block(TextPiece) + self._delta({"text": piece.text})
            case ThinkingPiece():
                opened = self._block(ThinkingPiece)
                self._thoughts.append(piece.text)
                return opened + self._delta({"reasoningContent": {"text": piece.text}})
            case ToolBegin():
                closed = self._close()
                self._open, self._blocks = ArgumentsPiece, self._blocks + 1
                start = {"toolUse": {"toolUseId": piece.id, "name": piece.name}}
                return closed + _event("contentBlockStart", {"start": start, "contentBlockIndex": self._blocks - 1})
            case ArgumentsPiece():
                return self._delta({"toolUse": {"input": piece.text}})

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

    def _delta(self, delta: dict[str, Any]) -> bytes:
        return _event("contentBlockDelta", {"delta": delta, "contentBlockIndex": self._blocks - 1})

    def _end(self, usage: Usage | None) -> bytes:
        waited = b"".join(self._say(piece) for piece in self._order.rest())
        ended = self._finished or Finished("abort")
        stop = _Stop(stop_reason(ended.finish), model_fields(ended.stop_sequence))
        metadata = _Metadata(token_usage(usage, self.losses), Metrics(self.envelope.elapsed_ms()))
        return waited + self._close() + _event("messageStop", stop) + _event("metadata", metadata)
