"""Whole replies of Anthropic Messages.

`decode_reply` is for clients and for the laws; the proxy itself only writes replies of this dialect.
Source: Anthropic API reference, "Create a message", returns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from polarproxy.errors import UNREADABLE, BadReply
from polarproxy.model import Loss
from polarproxy.wire.messages.blocks import Block, TextBlock, ToolUseBlock, thinking_block
from polarproxy.wire.messages.usage import (
    ABORTED,
    FINISHES,
    STOP_REASONS,
    UNCOUNTED,
    TokenCounts,
    read_usage,
    write_usage,
)
from polarproxy.wire.neutral.arguments import MALFORMED, from_object, to_object
from polarproxy.wire.neutral.reply import Choice, Envelope, Finish, Reply
from polarproxy.wire.neutral.request import Encoded, Text, Thinking, ToolUse
from polarproxy.wire.neutral.seal import unseal

if TYPE_CHECKING:
    from collections.abc import Sequence


class Message(msgspec.Struct, tag="message", kw_only=True):
    """A message as it is written; in a stream it begins without content and reason."""

    id: str
    role: str = "assistant"
    model: str
    content: Sequence[Block] = ()
    stop_reason: str | None = None
    stop_sequence: str | None = None
    usage: TokenCounts


def message_id(envelope: Envelope) -> str:
    """The id of the message that answers a call."""
    return f"msg_{envelope.id}"


def shows_thinking(envelope: Envelope) -> bool:
    """Whether the text of reasoning is sent; the client may want its signature alone (`thinking.display: omitted`)."""
    reasoning = envelope.request.reasoning
    return reasoning is None or reasoning.shown is not False


def stop_reason(finish: Finish, has_calls: bool) -> str:
    """Why the model stopped. An engine that was made to call a tool says `stop`, where this dialect says `tool_use`."""
    return STOP_REASONS["tool_calls" if finish == "stop" and has_calls else finish]


def encode_reply(reply: Reply, envelope: Envelope) -> Encoded:
    """The body of an unstreamed reply. This dialect has one answer: those after the first are reported as lost."""
    losses: list[Loss] = []
    choice = reply.answer
    losses += [Loss(f"choices[{other}]", "left out: a message is one answer") for other in reply.others]
    if reply.usage is None:
        losses.append(Loss("usage", UNCOUNTED))
    if choice.finish == "abort":
        losses.append(Loss("stop_reason", ABORTED))
    shown = shows_thinking(envelope)
    message = Message(
        id=message_id(envelope),
        model=envelope.model,
        usage=write_usage(reply.usage),
        content=[_block(part, shown, f"content[{place}]", losses) for place, part in enumerate(choice.parts)],
        stop_reason=stop_reason(choice.finish, any(isinstance(part, ToolUse) for part in choice.parts)),
        stop_sequence=choice.stop_sequence,
    )
    return Encoded(msgspec.json.encode(message), tuple(losses))


def _block(part: Text | Thinking | ToolUse, shown: bool, where: str, losses: list[Loss]) -> Block:
    match part:
        case Text():
            return TextBlock(part.text)
        case Thinking():
            return thinking_block(part.text, part.seal, shown)
        case ToolUse():
            given, well_formed = to_object(part.arguments)
            if not well_formed:
                losses.append(Loss(f"{where}.input", MALFORMED))
            return ToolUseBlock(part.id, part.name, msgspec.Raw(given))


class _Block(msgspec.Struct):
    type: str
    text: str = ""
    thinking: str = ""
    signature: str | None = None
    data: str = ""
    id: str = ""
    name: str = ""
    input: msgspec.Raw = msgspec.Raw(b"{}")


class _Message(msgspec.Struct):
    content: list[_Block]
    usage: TokenCounts
    stop_reason: str | None = None
    stop_sequence: str | None = None


_message = msgspec.json.Decoder(_Message)


def decode_reply(body: bytes) -> Reply:
    """Reads a message; raises `BadReply` when it is none. Blocks of types that a model here never says are passed over."""
    try:
        message = _message.decode(body)
    except UNREADABLE as error:
        raise BadReply(f"not a message of the Anthropic API: {error}") from error
    parts: list[Text | Thinking | ToolUse] = []
    for block in message.content:
        part = _part(block)
        if part is not None:
            _add(parts, part)
    finish = FINISHES.get(message.stop_reason or "", "stop")
    return Reply((Choice(0, tuple(parts), finish, message.stop_sequence),), read_usage(message.usage))


def _part(block: _Block) -> Text | Thinking | ToolUse | None:
    match block.type:
        case "text" if block.text:
            return Text(block.text)
        case "thinking":
            ours = unseal(block.signature or "")
            return Thinking(block.thinking, block.signature) if ours is None else Thinking(ours)
        case "redacted_thinking":
            return Thinking("", block.data)
        case "tool_use":
            return ToolUse(block.id, block.name, from_object(bytes(block.input)))
    return None


def _add(parts: list[Text | Thinking | ToolUse], part: Text | Thinking | ToolUse) -> None:
    """Adds a part; text after text is the same text."""
    last = parts[-1] if parts else None
    if isinstance(last, Text) and isinstance(part, Text):
        parts[-1] = Text(last.text + part.text)
    else:
        parts.append(part)
