"""Streams of Anthropic Messages, written as the pieces come.

Blocks of this dialect follow each other, and harnesses on the AI SDK run a call when its block stops, not when the message
does. So no block of a call stops before the end: what comes after the first call waits (`InOrder`). Text before it never
does. `decode_stream` is for clients and for the laws; the proxy itself only writes.
Source: Anthropic documentation, "Streaming messages".
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from polarproxy.model import Loss
from polarproxy.wire.messages.blocks import Block, TextBlock, ThinkingBlock, ToolUseBlock
from polarproxy.wire.messages.errors import encode_error
from polarproxy.wire.messages.events import (
    BlockDelta,
    BlockStart,
    BlockStop,
    Delta,
    InputDelta,
    MessageDelta,
    MessageStart,
    MessageStop,
    SignatureDelta,
    Stop,
    TextDelta,
    ThinkingDelta,
    encode,
)
from polarproxy.wire.messages.reply import Message, message_id, shows_thinking, stop_reason
from polarproxy.wire.messages.stream_in import decode_stream
from polarproxy.wire.messages.usage import ABORTED, UNCOUNTED, write_prompt, write_usage
from polarproxy.wire.neutral.arguments import is_object
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

__all__ = ["Encoder", "decode_stream"]


@dataclass(slots=True)
class _Open:
    """The block that is open."""

    kind: type[Said]
    index: int
    said: list[str] = field(default_factory=list)


class Encoder:
    """One streamed reply on its way to one client (a `StreamEncoder`)."""

    def __init__(self, envelope: Envelope) -> None:
        self.losses: list[Loss] = []
        self._envelope = envelope
        self._shows_thinking = shows_thinking(envelope)
        self._begun = False
        self._blocks = 0
        self._block: _Open | None = None
        self._order = InOrder()
        self._called = False
        self._ended = Finished("abort")
        self._prompt = write_prompt(None, None)

    def feed(self, piece: Piece) -> bytes:
        """The events of a piece; `Final` ends the message."""
        match piece:
            case Begin():
                return self._begin(piece.prompt_tokens, piece.cached_tokens)
            case Final():
                return self._begin(None, None) + self._end(piece.usage)
            case _ if piece.index != 0:
                self._lose_choice(piece.index)
                return b""
            case Finished():
                self._ended = piece
                return b""
            case _:
                begun = self._begin(None, None)
                return begun + self._say(piece) if self._order.feed(piece) else begun

    def error(self, status: int, message: str) -> bytes:
        """The `error` event."""
        return b"event: error\ndata: " + encode_error(status, message) + b"\n\n"

    def _begin(self, prompt_tokens: int | None, cached_tokens: int | None) -> bytes:
        """`message_start`, once; a piece that comes before any `Begin` begins the message too."""
        if self._begun:
            return b""
        self._begun = True
        self._prompt = write_prompt(prompt_tokens, cached_tokens)
        id_ = message_id(self._envelope)
        return encode(MessageStart(Message(id=id_, model=self._envelope.model, usage=self._prompt)))

    def _say(self, piece: Said) -> bytes:
        match piece:
            case TextPiece():
                return self._in_block(TextPiece, TextBlock("")) + self._delta(piece.text, TextDelta(piece.text))
            case ThinkingPiece():
                opened = self._in_block(ThinkingPiece, ThinkingBlock("", ""))
                return opened + self._delta(piece.text, ThinkingDelta(piece.text) if self._shows_thinking else None)
            case ToolBegin():
                self._called = True
                return self._new_block(ToolBegin, ToolUseBlock(piece.id, piece.name, msgspec.Raw(b"{}")))
            case ArgumentsPiece():
                return self._delta(piece.text, InputDelta(piece.text))

    def _in_block(self, kind: type[Said], start: Block) -> bytes:
        """Begins a block, unless one of its kind is open."""
        return b"" if self._block is not None and self._block.kind is kind else self._new_block(kind, start)

    def _new_block(self, kind: type[Said], start: Block) -> bytes:
        closed = self._close()
        self._block = _Open(kind, self._blocks)
        self._blocks += 1
        return closed + encode(BlockStart(self._block.index, start))

    def _delta(self, text: str, delta: Delta | None) -> bytes:
        """More of the open block; None: it is not shown."""
        assert self._block is not None
        self._block.said.append(text)
        return b"" if delta is None else encode(BlockDelta(self._block.index, delta))

    def _close(self) -> bytes:
        """Ends the open block."""
        block, self._block = self._block, None
        if block is None:
            return b""
        said = "".join(block.said)
        out = b""
        if block.kind is ThinkingPiece:
            out = encode(BlockDelta(block.index, SignatureDelta(seal(said))))
        elif block.kind is ToolBegin and said.strip() and not is_object(said):
            self.losses.append(Loss(f"content[{block.index}].input", "not a JSON object; streamed as it was sampled"))
        return out + encode(BlockStop(block.index))

    def _end(self, usage: Usage | None) -> bytes:
        out = [self._say(piece) for piece in self._order.rest()]
        out.append(self._close())
        if usage is None:
            self.losses.append(Loss("usage", UNCOUNTED))
        if self._ended.finish == "abort":
            self.losses.append(Loss("stop_reason", ABORTED))
        stop = Stop(stop_reason(self._ended.finish, self._called), self._ended.stop_sequence)
        out.append(encode(MessageDelta(stop, self._prompt if usage is None else write_usage(usage))))
        out.append(encode(MessageStop()))
        return b"".join(out)

    def _lose_choice(self, index: int) -> None:
        loss = Loss(f"choices[{index}]", "left out: a message is one answer")
        if loss not in self.losses:
            self.losses.append(loss)
