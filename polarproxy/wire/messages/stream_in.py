"""Streams of Anthropic Messages as a client reads them.

For clients and for the laws; the proxy itself only writes streams of this dialect.
Source: Anthropic documentation, "Streaming messages".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from polarproxy.errors import UNREADABLE, BadReply
from polarproxy.wire.messages.usage import FINISHES, TokenCounts, read_usage
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
from polarproxy.wire.neutral.seal import unseal
from polarproxy.wire.sse import event_data

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


class _Start(msgspec.Struct):
    type: str
    text: str = ""
    thinking: str = ""
    id: str = ""
    name: str = ""
    input: msgspec.Raw = msgspec.Raw(b"{}")


class _Delta(msgspec.Struct):
    type: str | None = None
    text: str = ""
    thinking: str = ""
    signature: str = ""
    partial_json: str = ""
    stop_reason: str | None = None
    stop_sequence: str | None = None


class _Message(msgspec.Struct):
    usage: TokenCounts


class _Error(msgspec.Struct):
    type: str = ""
    message: str = ""


class _Event(msgspec.Struct):
    type: str
    message: _Message | None = None
    content_block: _Start | None = None
    delta: _Delta | None = None
    usage: TokenCounts | None = None
    error: _Error | None = None


_event = msgspec.json.Decoder(_Event)


@dataclass(slots=True)
class _Block:
    """The block that is open."""

    kind: str = ""
    call: int = -1
    given: bytes = b"{}"
    """The `input` that the block began with; it stands when no piece of another comes."""
    spoke: bool = False


def decode_stream(events: Iterable[bytes]) -> list[Piece]:
    """The pieces of a stream, given event by event; raises `BadReply` for an `error` event, or no event of this API."""
    reader = _Reader()
    return [piece for event in events for piece in reader.read(event)]


class _Reader:
    def __init__(self) -> None:
        self._counts = TokenCounts()
        self._block = _Block()
        self._calls = 0
        self._ended = Finished("stop")

    def read(self, raw: bytes) -> Iterator[Piece]:
        data = event_data(raw)
        if data is None:
            return
        try:
            event = _event.decode(data)
        except UNREADABLE as error:
            raise BadReply(f"not an event of the Anthropic API: {error}") from error
        match event.type:
            case "message_start" if event.message is not None:
                self._counts = event.message.usage
                usage = read_usage(self._counts)
                yield Begin(usage.prompt_tokens, usage.cached_tokens)
            case "content_block_start" if event.content_block is not None:
                yield from self._start(event.content_block)
            case "content_block_delta" if event.delta is not None:
                yield from self._delta(event.delta)
            case "content_block_stop":
                yield from self._stop()
            case "message_delta" if event.delta is not None:
                self._ended = Finished(FINISHES.get(event.delta.stop_reason or "", "stop"), event.delta.stop_sequence)
                self._count(event.usage)
            case "message_stop":
                yield self._ended
                yield Final(read_usage(self._counts))
            case "error":
                raise BadReply(event.error.message if event.error else "the stream failed")

    def _start(self, start: _Start) -> Iterator[Piece]:
        self._block = _Block(start.type, given=bytes(start.input))
        if start.type == "tool_use":
            self._block.call = self._calls
            self._calls += 1
            yield ToolBegin(self._block.call, start.id, start.name)
        if start.text:
            yield TextPiece(start.text)
        if start.thinking:
            self._block.spoke = True
            yield ThinkingPiece(start.thinking)

    def _delta(self, delta: _Delta) -> Iterator[Piece]:
        if delta.text:
            yield TextPiece(delta.text)
        if delta.thinking:
            self._block.spoke = True
            yield ThinkingPiece(delta.thinking)
        if delta.partial_json:
            self._block.spoke = True
            yield ArgumentsPiece(self._block.call, delta.partial_json)
        # A server that shows no reasoning still sends its signature; one of ours holds the text.
        hidden = unseal(delta.signature) if delta.signature and not self._block.spoke else None
        if hidden:
            yield ThinkingPiece(hidden)

    def _stop(self) -> Iterator[Piece]:
        if self._block.kind == "tool_use" and not self._block.spoke:
            yield ArgumentsPiece(self._block.call, self._block.given.decode())

    def _count(self, counts: TokenCounts | None) -> None:
        """Takes over the counts of a later event; those that it leaves out stay as they were."""
        if counts is None:
            return
        for name in TokenCounts.__struct_fields__:
            value = getattr(counts, name)
            if value is not None and value is not msgspec.UNSET:
                setattr(self._counts, name, value)
