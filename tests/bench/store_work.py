"""What the stores of the benchmark are given: whole sessions of canned conversations, each call as the proxy records it."""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING

from polarproxy.model import (
    Call,
    CallStatus,
    Completion,
    Dialect,
    FinishReason,
    Logprobs,
    LogprobsMode,
    Sampling,
    Session,
    Timing,
    TokenIds,
    TokenSource,
    Usage,
)
from polarproxy.store.items import NewCall
from tests.bench.canned import MODEL, SESSION_AT, Size, conversation, request_template, session_ids

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.bench.canned import RequestTemplate

# Prompts of 8,000 tokens in the mean, as harnesses send them: what a turn adds is a sixteenth of it.
LOAD = Size("8k, 16 turns", 8_000, 200, variants=4, turns=16, interstitial_tokens=300)
# 1.47 million prompt positions, 55,000 tokens at the end.
LONG = Size("50 turns to 55k", 29_400, 250, variants=1, turns=50, interstitial_tokens=800)
# 200 turns to 55,000 tokens.
MANY = Size("200 turns to 55k", 28_362, 75, variants=1, turns=200, interstitial_tokens=200)

_NOW = datetime(2026, 1, 1, tzinfo=UTC)
_SLOT = slice(4 * SESSION_AT, 4 * (SESSION_AT + 2))


@dataclass(frozen=True)
class _Template:
    """One turn of a conversation, still without a session."""

    call: Call
    prompt: bytes
    body: RequestTemplate


@cache
def _templates(size: Size, variant: int) -> tuple[_Template, ...]:
    found = []
    for number, turn in enumerate(conversation(size, variant)):
        sampled = TokenIds.of(turn.completion_token_ids)
        call = Call(
            call_id="",
            session_id="",
            ordinal=number,
            arrived_at=_NOW,
            dialect=Dialect.CHAT,
            path="/v1/chat/completions",
            streamed=False,
            engine="vllm",
            status=CallStatus.COMPLETED,
            http_status=200,
            error=None,
            requested_model=MODEL,
            served_model=MODEL,
            prompt_token_ids=None,
            completions=(Completion(0, sampled, Logprobs.of(turn.logprobs), FinishReason.STOP),),
            token_source=TokenSource.ENGINE,
            usage=Usage(len(turn.prompt_token_ids), len(sampled)),
            sampling=Sampling(temperature=1.0, max_tokens=len(sampled), logprobs_mode=LogprobsMode.PROCESSED),
            headers=(("user-agent", "harness/1.0"),),
            tools_digest="0" * 32,
            template_digest="1" * 32,
            timing=Timing(1_000, 2_000),
        )
        body = request_template(size, variant, number, pace_us=None, ask=False, tell=False)
        found.append(_Template(call, TokenIds.of(_without_slot(turn.prompt_token_ids)).raw, body))
    return tuple(found)


def _without_slot(ids: list[int]) -> list[int]:
    return [*ids[:SESSION_AT], 0, 0, *ids[SESSION_AT + 2 :]]


def session_calls(size: Size, number: int, *, requests: bool = True) -> Iterator[NewCall]:
    """The calls of one session in order. No two sessions share a prompt or a body, the turns of one extend each other.

    Without `requests` they are calls of a proxy that keeps no bodies.
    """
    name = f"s{number:06d}"
    session = Session(name, _NOW)
    slot = struct.pack("<2i", *session_ids(number))
    for template in _templates(size, number % size.variants):
        prompt = template.prompt[: _SLOT.start] + slot + template.prompt[_SLOT.stop :]
        call = replace(
            template.call,
            call_id=f"c{number:06d}{template.call.ordinal:04d}",
            session_id=name,
            prompt_token_ids=TokenIds(prompt),
            request_body=template.body.body(number) if requests else b"",
        )
        yield NewCall(call, session, {})
