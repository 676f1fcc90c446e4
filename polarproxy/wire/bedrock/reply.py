"""Whole replies of Converse.

Source: the service model of `bedrock-runtime` (2023-09-30), shape ConverseResponse.
`decode_reply` is for clients and for the laws; the proxy itself only writes replies of this dialect.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from polarproxy.errors import BadReply
from polarproxy.model import Loss, Usage
from polarproxy.wire.bedrock.read_content import read_block
from polarproxy.wire.bedrock.reading import Reader
from polarproxy.wire.bedrock.shapes import MessageShape, Metrics, Shape, TokenUsage
from polarproxy.wire.bedrock.write_content import write_blocks
from polarproxy.wire.neutral.reply import Choice, Finish, Reply
from polarproxy.wire.neutral.request import Encoded, Text, Thinking, ToolUse

if TYPE_CHECKING:
    from collections.abc import Iterable

    from polarproxy.wire.neutral.reply import Envelope

_REASONS: dict[Finish, str] = {
    "stop": "end_turn",
    "stop_sequence": "stop_sequence",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "content_filter": "content_filtered",
    "abort": "malformed_model_output",
}
_FINISHES: dict[str, Finish] = {reason: finish for finish, reason in _REASONS.items()} | {
    "guardrail_intervened": "content_filter",
    "malformed_tool_use": "abort",
    "model_context_window_exceeded": "length",
}


class ModelFields(msgspec.Struct, frozen=True):
    """`additionalModelResponseFields`, as Claude fills it."""

    stop_sequence: str | None = None


class _Output(Shape, frozen=True):
    message: MessageShape


class _Reply(Shape, frozen=True):
    output: _Output
    stop_reason: str
    usage: TokenUsage | None = None
    metrics: Metrics | None = None
    additional_model_response_fields: ModelFields | None = None


def stop_reason(finish: Finish) -> str:
    """`stopReason`."""
    return _REASONS[finish]


def finish_of(reason: str) -> Finish:
    """What a `stopReason` means; raises `BadReply` for one that is not of this API."""
    if reason not in _FINISHES:
        raise BadReply(f"unknown stopReason {reason!r}")
    return _FINISHES[reason]


def token_usage(usage: Usage | None, losses: list[Loss]) -> TokenUsage:
    """`usage`, which clients expect to be there: zeros, and a loss, when the engine did not count."""
    if usage is None:
        losses.append(Loss("usage", "the engine did not count; told as 0"))
        return TokenUsage(0, 0, 0)
    total = usage.prompt_tokens + usage.completion_tokens
    return TokenUsage(
        usage.prompt_tokens - (usage.cached_tokens or 0), usage.completion_tokens, total, usage.cached_tokens
    )


def usage_of(usage: TokenUsage) -> Usage:
    """What a `usage` counts."""
    read, written = usage.cache_read_input_tokens, usage.cache_write_input_tokens
    return Usage(usage.input_tokens + (read or 0) + (written or 0), usage.output_tokens, read)


def encode_reply(reply: Reply, envelope: Envelope) -> Encoded:
    """A reply as the body of Converse."""
    losses = [Loss(f"choices[{other}]", "this API gives one answer; left out") for other in reply.others]
    choice = reply.answer
    where = "output.message.content"
    message = MessageShape("assistant", write_blocks(choice.parts, where, losses))
    body = _Reply(
        output=_Output(message),
        stop_reason=stop_reason(choice.finish),
        usage=token_usage(reply.usage, losses),
        metrics=Metrics(envelope.elapsed_ms()),
        additional_model_response_fields=model_fields(choice.stop_sequence),
    )
    return Encoded(msgspec.json.encode(body), tuple(losses))


def model_fields(stop_sequence: str | None) -> ModelFields | None:
    """Where the text of a stop string goes; None when none ended the reply."""
    return None if stop_sequence is None else ModelFields(stop_sequence)


def decode_reply(body: bytes) -> Reply:
    """The reply of a body of Converse; raises `BadReply` when it is none."""
    reader = Reader(BadReply)
    shape = reader.value(body, _Reply, "body")
    parts: list[Thinking | Text | ToolUse] = []
    for place, block in enumerate(shape.output.message.content):
        read = read_block(reader, block, f"output.message.content[{place}]")
        parts.extend(part for part in read if isinstance(part, (Thinking, Text, ToolUse)))
    fields = shape.additional_model_response_fields
    choice = Choice(0, tuple(_joined(parts)), finish_of(shape.stop_reason), fields.stop_sequence if fields else None)
    return Reply((choice,), usage_of(shape.usage) if shape.usage else None)


def _joined(parts: Iterable[Thinking | Text | ToolUse]) -> list[Thinking | Text | ToolUse]:
    """Texts that follow each other as one, as canonical form wants it; a foreign model may cut them for citations."""
    joined: list[Thinking | Text | ToolUse] = []
    for part in parts:
        last = joined[-1] if joined else None
        if isinstance(part, Text) and isinstance(last, Text):
            joined[-1] = Text(last.text + part.text)
        else:
            joined.append(part)
    return joined
