"""OpenAI Chat Completions: a whole reply between its JSON and the neutral form.

Source: OpenAI API reference, "The chat completion object"; `reasoning` and `stop_reason` as vLLM 0.32 writes them.
Both directions are for clients and for the laws; the proxy itself passes chat replies on, and translates them by their events.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import msgspec

from polarproxy.errors import UNREADABLE, BadReply
from polarproxy.model import Loss
from polarproxy.wire.chat.finish import UsageMember, read_finish, write_finish, write_usage
from polarproxy.wire.neutral.reply import Choice, Envelope, Reply
from polarproxy.wire.neutral.request import Encoded, Text, Thinking, ToolUse

if TYPE_CHECKING:
    from polarproxy.wire.chat.media import Json


class _Function(msgspec.Struct):
    name: str = ""
    arguments: str | None = None


class _ToolCall(msgspec.Struct):
    id: str | None = None
    function: _Function | None = None


class _Message(msgspec.Struct):
    content: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    refusal: str | None = None
    tool_calls: list[_ToolCall] | None = None


class _Choice(msgspec.Struct):
    message: _Message
    index: int = 0
    finish_reason: str | None = None
    stop_reason: int | str | None = None


class _Reply(msgspec.Struct):
    choices: list[_Choice]
    usage: UsageMember | None = None


_reply = msgspec.json.Decoder(_Reply)
_encode = msgspec.json.Encoder().encode
_PLACE: dict[type[Thinking | Text | ToolUse], int] = {Thinking: 0, Text: 1, ToolUse: 2}


def decode_reply(body: bytes) -> Reply:
    """Reads a whole reply; raises `BadReply` when it is not one, or calls a tool without its name."""
    try:
        reply = _reply.decode(body)
    except UNREADABLE as error:
        raise BadReply(f"the engine's reply is not a chat completion: {error}") from error
    return Reply(
        tuple(_decode_choice(choice) for choice in reply.choices), None if reply.usage is None else reply.usage.value()
    )


def _decode_choice(choice: _Choice) -> Choice:
    said = choice.message
    parts: list[Thinking | Text | ToolUse] = []
    if thinking := said.reasoning or said.reasoning_content:
        parts.append(Thinking(thinking))
    if text := said.content or said.refusal:
        parts.append(Text(text))
    calls = [
        ToolUse(call.id or "", call.function.name, call.function.arguments or "")
        for call in said.tool_calls or ()
        if call.function is not None
    ]
    if not all(call.name for call in calls):
        raise BadReply("the engine called a tool without saying its name")
    finish, stop = read_finish(choice.finish_reason or "stop", choice.stop_reason, called=bool(calls))
    return Choice(choice.index, (*parts, *calls), finish, stop)


def encode_reply(reply: Reply, envelope: Envelope) -> Encoded:
    """Writes a whole reply. Chat has no order of parts: what was sampled in another order is a `Loss`."""
    losses: list[Loss] = []
    body: Json = {
        "id": f"chatcmpl-{envelope.id}",
        "object": "chat.completion",
        "created": envelope.created,
        "model": envelope.model,
        "choices": [_encode_choice(choice, losses) for choice in reply.choices],
        "usage": None if reply.usage is None else write_usage(reply.usage),
    }
    return Encoded(_encode(body), tuple(losses))


def _encode_choice(choice: Choice, losses: list[Loss]) -> Json:
    places = [_PLACE[type(part)] for part in choice.parts]
    if any(after < before or after == before < 2 for before, after in pairwise(places)):
        why = "chat has no order of parts; written as reasoning, text, tool calls"
        losses.append(Loss(f"choices[{choice.index}].message", why))
    calls = [_tool_call(part) for part in choice.parts if isinstance(part, ToolUse)]
    text = "".join(part.text for part in choice.parts if isinstance(part, Text))
    message: Json = {"role": "assistant", "content": text if text or not calls else None, "refusal": None}
    if thinking := "".join(part.text for part in choice.parts if isinstance(part, Thinking)):
        message["reasoning"] = thinking
    if calls:
        message["tool_calls"] = calls
    ending = write_finish(choice.finish, choice.stop_sequence)
    return {"index": choice.index, "message": message, "logprobs": None, **ending}


def _tool_call(use: ToolUse) -> Json:
    return {"id": use.id, "type": "function", "function": {"name": use.name, "arguments": use.arguments}}
