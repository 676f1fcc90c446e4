"""Streams of Anthropic Messages, written as the pieces come.

Blocks of this dialect follow each other, while the engine may go on with an earlier tool call after a later one began.
So a block is closed when the next one has begun and it can be complete: text and reasoning always, a tool call once its
arguments are a JSON object. Until then what comes for later blocks waits; everything waiting leaves at the end.
Source: Anthropic documentation, "Streaming messages".
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec

from polarproxy.model import Loss
from polarproxy.wire.messages.arguments import is_object
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

_Said: TypeAlias = TextPiece | ThinkingPiece | ToolBegin | ArgumentsPiece


@dataclass(slots=True, eq=False)
class _Block:
    """A block that is not closed yet."""

    kind: Literal["text", "thinking", "tool"]
    index: int
    call: ToolBegin | None = None
    """None: no tool call."""
    said: list[str] = field(default_factory=list)
    sent: int | None = None
    """How many of `said` have left. None: the block has not even begun."""
    closed: bool = False

    def is_complete(self) -> bool:
        """Whether nothing more can come, if another block has begun."""
        return self.kind != "tool" or is_object("".join(self.said))

    def start(self) -> Block:
        if self.call is not None:
            return ToolUseBlock(self.call.id, self.call.name, msgspec.Raw(b"{}"))
        return TextBlock("") if self.kind == "text" else ThinkingBlock("", "")

    def delta(self, text: str) -> Delta:
        match self.kind:
            case "text":
                return TextDelta(text)
            case "thinking":
                return ThinkingDelta(text)
            case "tool":
                return InputDelta(text)


class Encoder:
    """One streamed reply on its way to one client (a `StreamEncoder`)."""

    def __init__(self, envelope: Envelope) -> None:
        self.losses: list[Loss] = []
        self._envelope = envelope
        self._shows_thinking = shows_thinking(envelope)
        self._begun = False
        self._blocks = 0
        self._queue: deque[_Block] = deque()
        """Blocks in order; what has left the first of them, the client sees growing."""
        self._calls: dict[int, _Block] = {}
        self._ended = Finished("stop")
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
                self._say(piece)
                return self._begin(None, None) + self._advance()

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

    def _say(self, piece: _Said) -> None:
        """Puts a piece into its block: the last one, or the one of its tool call."""
        match piece:
            case TextPiece():
                self._last("text").said.append(piece.text)
            case ThinkingPiece():
                self._last("thinking").said.append(piece.text)
            case ToolBegin():
                self._calls[piece.call] = self._new("tool", piece)
            case ArgumentsPiece():
                block = self._calls[piece.call]
                if not block.closed:
                    block.said.append(piece.text)
                elif piece.text.strip():
                    where = f"content[{block.index}].input"
                    self.losses.append(Loss(where, f"came after the end of the object and was left out: {piece.text}"))

    def _last(self, kind: Literal["text", "thinking"]) -> _Block:
        if self._queue and self._queue[-1].kind == kind:
            return self._queue[-1]
        return self._new(kind, None)

    def _new(self, kind: Literal["text", "thinking", "tool"], call: ToolBegin | None) -> _Block:
        block = _Block(kind, self._blocks, call)
        self._blocks += 1
        self._queue.append(block)
        return block

    def _advance(self) -> bytes:
        """Sends what can be sent now."""
        out = []
        while self._queue:
            out.append(self._send(self._queue[0]))
            if len(self._queue) == 1 or not self._queue[0].is_complete():
                break
            out.append(self._close())
        return b"".join(out)

    def _send(self, block: _Block) -> bytes:
        """What of a block has not left yet."""
        out = []
        if block.sent is None:
            block.sent = 0
            out.append(encode(BlockStart(block.index, block.start())))
        text = "".join(block.said[block.sent :])
        block.sent = len(block.said)
        if text and (self._shows_thinking or block.kind != "thinking"):
            out.append(encode(BlockDelta(block.index, block.delta(text))))
        return b"".join(out)

    def _close(self) -> bytes:
        """Ends the first block."""
        block = self._queue.popleft()
        block.closed = True
        said = "".join(block.said)
        out = b""
        if block.kind == "thinking":
            out = encode(BlockDelta(block.index, SignatureDelta(seal(said))))
        elif block.kind == "tool" and said and not is_object(said):
            self.losses.append(Loss(f"content[{block.index}].input", "not a JSON object; streamed as it was sampled"))
        return out + encode(BlockStop(block.index))

    def _end(self, usage: Usage | None) -> bytes:
        out = []
        while self._queue:
            out.append(self._send(self._queue[0]))
            out.append(self._close())
        if usage is None:
            self.losses.append(Loss("usage", UNCOUNTED))
        if self._ended.finish == "abort":
            self.losses.append(Loss("stop_reason", ABORTED))
        stop = Stop(stop_reason(self._ended.finish, bool(self._calls)), self._ended.stop_sequence)
        out.append(encode(MessageDelta(stop, self._prompt if usage is None else write_usage(usage))))
        out.append(encode(MessageStop()))
        return b"".join(out)

    def _lose_choice(self, index: int) -> None:
        loss = Loss(f"choices[{index}]", "left out: a message is one answer")
        if loss not in self.losses:
            self.losses.append(loss)
