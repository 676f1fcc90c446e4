"""Whole replies, both ways.

Source: OpenAI API reference, "The response object".
`decode_reply` is for clients and for the laws; the proxy itself only writes replies of this dialect.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from polarproxy.errors import BadReply, BadRequest
from polarproxy.model import Loss, Usage
from polarproxy.wire.neutral.reading import read
from polarproxy.wire.neutral.reply import (
    ArgumentsPiece,
    Final,
    Finish,
    Finished,
    Piece,
    Reply,
    TextPiece,
    ThinkingPiece,
    ToolBegin,
    fold,
    pieces,
)
from polarproxy.wire.neutral.request import Encoded, Text, Thinking, ToolUse
from polarproxy.wire.responses.output import Output
from polarproxy.wire.responses.read_items import ItemReader, item_kind
from polarproxy.wire.responses.response import context_of, ended
from polarproxy.wire.responses.tools import ToolNames, ToolReader

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from polarproxy.wire.neutral.reply import Envelope

__all__ = ["context_of", "decode_reply", "encode_reply"]

WHOLE: tuple[Finish, ...] = ("stop", "stop_sequence", "tool_calls")
"""The ends of an answer that is complete."""


def encode_reply(reply: Reply, envelope: Envelope) -> Encoded:
    """The response that a reply is; only the first choice has a place in it."""
    choice = reply.answer
    output = Output(envelope.id, envelope.request.tools)
    for piece in pieces(Reply((choice,))):
        if isinstance(piece, (TextPiece, ThinkingPiece, ToolBegin, ArgumentsPiece)):
            output.add(piece)
    output.end(whole=choice.finish in WHOLE)
    losses = [*output.take_losses(), *end_losses(choice.finish, choice.stop_sequence)]
    losses += [other_choice(other) for other in reply.others]
    response = ended(envelope, choice.finish, output.items, reply.usage)
    return Encoded(msgspec.json.encode(response), tuple(losses))


def end_losses(finish: Finish, stop_sequence: str | None) -> list[Loss]:
    """What of an answer's end has no place in a response."""
    if finish != "stop_sequence":
        return []
    return [Loss("status", f"that the stop string {stop_sequence!r} ended it has no place here; it is completed")]


def other_choice(index: int) -> Loss:
    """That a choice was left out."""
    return Loss(f"choices[{index}]", "one answer is all that a response has; left out")


class _InputDetails(msgspec.Struct):
    cached_tokens: int = 0


class _OutputDetails(msgspec.Struct):
    reasoning_tokens: int = 0


class _Counts(msgspec.Struct):
    input_tokens: int = 0
    output_tokens: int = 0
    input_tokens_details: _InputDetails | None = None
    output_tokens_details: _OutputDetails | None = None

    def usage(self) -> Usage:
        cached = self.input_tokens_details.cached_tokens if self.input_tokens_details else 0
        reasoned = self.output_tokens_details.reasoning_tokens if self.output_tokens_details else 0
        return Usage(self.input_tokens, self.output_tokens, cached or None, reasoned or None)


class _Incomplete(msgspec.Struct):
    reason: str | None = None


class ReadResponse(msgspec.Struct):
    """A response as it is read; a count of 0 in the details of its usage stands for none."""

    status: str = "completed"
    output: list[msgspec.Raw] = []
    tools: list[msgspec.Raw] = []
    incomplete_details: _Incomplete | None = None
    usage: _Counts | None = None

    def names(self) -> ToolNames:
        """How the tools are called that the response repeats; raises `BadRequest`."""
        reader = ToolReader([])
        reader.read(self.tools, "tools")
        return ToolNames(reader.tools)

    def end(self, *, calls: bool) -> Finish:
        """Why the answer ended."""
        match self.status:
            case "completed":
                return "tool_calls" if calls else "stop"
            case "incomplete":
                reason = self.incomplete_details.reason if self.incomplete_details else None
                return "content_filter" if reason == "content_filter" else "length"
        return "abort"

    def counted(self) -> Usage | None:
        """Usage. None: not said."""
        return None if self.usage is None else self.usage.usage()


response_decoder = msgspec.json.Decoder(ReadResponse)


def decode_reply(body: bytes) -> Reply:
    """The reply that a response is; raises `BadReply`."""
    try:
        return fold(_pieces(read(response_decoder, body, "the response")))
    except BadRequest as error:
        raise BadReply(str(error)) from error


def _pieces(response: ReadResponse) -> Iterator[Piece]:
    names = response.names()
    parts = [part for place, raw in enumerate(response.output) for part in said_by(raw, names, f"output[{place}]")]
    calls = 0
    for part in parts:
        yield from part_pieces(part, calls)
        calls += isinstance(part, ToolUse)
    yield Finished(response.end(calls=calls > 0))
    yield Final(response.counted())


def said_by(raw: msgspec.Raw, names: ToolNames, where: str) -> Sequence[Text | Thinking | ToolUse]:
    """What the model says by an item of a response; raises `BadRequest`."""
    kind = read(item_kind, raw, where)
    return ItemReader(names, []).said(raw, kind, where) or ()


def part_pieces(part: Text | Thinking | ToolUse, call: int) -> Iterator[Piece]:
    """A part of an answer as pieces; `call` numbers it when it is a call."""
    match part:
        case Text():
            yield TextPiece(part.text)
        case Thinking():
            yield ThinkingPiece(part.text)
        case ToolUse():
            yield ToolBegin(call, part.id, part.name)
            if part.arguments:
                yield ArgumentsPiece(call, part.arguments)
