"""The reply of `generateContent`, to and from the neutral reply.

Source: Gemini API reference, `GenerateContentResponse`. A thought is told only to clients that ask for thoughts; its
signature rides on the part after it either way, so that it comes back.
`decode_reply` is for clients and for the laws; the proxy itself only writes replies of this dialect.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec import UNSET, UnsetType

from polarproxy.errors import BadReply, BadRequest
from polarproxy.model import Loss, Usage
from polarproxy.wire.gemini.findings import Findings
from polarproxy.wire.gemini.members import read_body
from polarproxy.wire.gemini.read_tools import own_names
from polarproxy.wire.gemini.shapes import Candidate, Content, Part, Response, UsageMetadata
from polarproxy.wire.gemini.signature import sign
from polarproxy.wire.gemini.turn import Turn
from polarproxy.wire.gemini.write_parts import call_part
from polarproxy.wire.neutral.reply import Choice, Envelope, Finish, Reply
from polarproxy.wire.neutral.request import Encoded, Text, Thinking, ToolUse

if TYPE_CHECKING:
    from polarproxy.wire.gemini.members import Members

_REASONS: dict[Finish, str] = {
    "stop": "STOP",
    "stop_sequence": "STOP",
    "length": "MAX_TOKENS",
    "tool_calls": "STOP",
    "content_filter": "SAFETY",
    "abort": "OTHER",
}
_FILTERS = frozenset({"SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "MODEL_ARMOR"})


def shows_thoughts(envelope: Envelope) -> bool:
    """Whether the client asked to see thoughts."""
    reasoning = envelope.request.reasoning
    return reasoning is not None and reasoning.shown is True


def finish_reason(finish: Finish, index: int) -> tuple[str, list[Loss]]:
    """`finishReason`, and what it does not tell."""
    if finish == "stop_sequence":
        why = "which stop sequence ended the text has no place in this API"
        return _REASONS[finish], [Loss(f"candidates[{index}].finishReason", why)]
    return _REASONS[finish], []


def read_finish(reason: str, called: bool) -> Finish:
    """The finish of a choice. `called`: it holds calls."""
    match reason:
        case "STOP":
            return "tool_calls" if called else "stop"
        case "MAX_TOKENS":
            return "length"
        case _:
            return "content_filter" if reason in _FILTERS else "abort"


def malformed_arguments(index: int, call: str) -> Loss:
    """What is told of a call whose arguments are no JSON object."""
    return Loss(f"candidates[{index}].functionCall", f"the arguments of {call!r} are no JSON object; wrapped in one")


def usage_metadata(usage: Usage) -> UsageMetadata:
    """The counts; those of the candidates are without the thoughts."""
    thoughts = usage.reasoning_tokens
    return UsageMetadata(
        prompt_token_count=usage.prompt_tokens,
        candidates_token_count=max(usage.completion_tokens - (thoughts or 0), 0),
        total_token_count=usage.prompt_tokens + usage.completion_tokens,
        cached_content_token_count=UNSET if usage.cached_tokens is None else usage.cached_tokens,
        thoughts_token_count=UNSET if thoughts is None else thoughts,
    )


def read_usage(counts: Members | None) -> Usage | None:
    """The counts of `usageMetadata`. None: there is none."""
    if counts is None:
        return None
    thoughts = counts.integer("thoughtsTokenCount")
    return Usage(
        prompt_tokens=counts.integer("promptTokenCount") or 0,
        completion_tokens=(counts.integer("candidatesTokenCount") or 0) + (thoughts or 0),
        cached_tokens=counts.integer("cachedContentTokenCount"),
        reasoning_tokens=thoughts,
    )


def encode_reply(reply: Reply, envelope: Envelope) -> Encoded:
    """The body of the reply."""
    own = own_names(envelope.request.tools)
    shown = shows_thoughts(envelope)
    losses: list[Loss] = []
    candidates = []
    for choice in reply.choices:
        reason, untold = finish_reason(choice.finish, choice.index)
        losses.extend(untold)
        parts = _parts(choice, own, shown, losses)
        candidates.append(Candidate(Content(parts, "model"), reason, choice.index))
    usage = UNSET if reply.usage is None else usage_metadata(reply.usage)
    return Encoded(msgspec.json.encode(Response(candidates, usage, envelope.model, envelope.id)), tuple(losses))


def _parts(choice: Choice, own: dict[str, str], shown: bool, losses: list[Loss]) -> list[Part]:
    """Never without a part: SDKs tell the text of a reply without parts as none, and not as an empty one."""
    parts: list[Part] = []
    signature: str | UnsetType = UNSET
    for part in choice.parts:
        match part:
            case Thinking():
                parts.extend([Part(text=part.text, thought=True)] if shown else [])
                signature = sign(part.text)
            case Text():
                parts.append(Part(text=part.text, thought_signature=signature))
                signature = UNSET
            case ToolUse():
                call, malformed = call_part(part.id, own.get(part.name, part.name), part.arguments, signature)
                losses.extend([malformed_arguments(choice.index, part.name)] if malformed else [])
                parts.append(call)
                signature = UNSET
    if not parts or (signature is not UNSET and not shown):
        parts.append(Part(text="", thought_signature=signature))
    return parts


def decode_reply(body: bytes) -> Reply:
    """The reply in a body of this API; raises `BadReply`."""
    try:
        members = read_body(body)
        candidates = members.messages("candidates") or []
        return Reply(
            tuple(_choice(candidate) for candidate in candidates), read_usage(members.message("usageMetadata"))
        )
    except BadRequest as error:
        raise BadReply(f"not a reply of the Gemini API: {error}") from error


def _choice(candidate: Members) -> Choice:
    turn = Turn(Findings(), lambda call, name: (call, name))
    content = candidate.message("content")
    for part in (content and content.messages("parts")) or ():
        turn.add(part)
    called = any(isinstance(part, ToolUse) for part in turn.parts)
    finish = read_finish(candidate.text("finishReason") or "", called)
    return Choice(candidate.integer("index") or 0, tuple(turn.parts), finish)
