"""Token counts and reasons of ending as this dialect tells them.

`input_tokens` are the tokens of the prompt that were not found in a cache; the cached ones are counted beside them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from polarproxy.model import Usage

if TYPE_CHECKING:
    from polarproxy.wire.neutral.reply import Finish

STOP_REASONS: dict[Finish, str] = {
    "stop": "end_turn",
    "stop_sequence": "stop_sequence",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "content_filter": "refusal",
    "abort": "max_tokens",
}
"""An aborted answer is one that was cut; `max_tokens` is the only word for that."""

FINISHES: dict[str, Finish] = {
    "end_turn": "stop",
    "pause_turn": "stop",
    "stop_sequence": "stop_sequence",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
    "refusal": "content_filter",
}

ABORTED = "the engine gave up; said as max_tokens, since this dialect has no word for it"
UNCOUNTED = "the engine counted no tokens; told as 0"


class OutputDetails(msgspec.Struct):
    """`usage.output_tokens_details`."""

    thinking_tokens: int = 0


class TokenCounts(msgspec.Struct, omit_defaults=False):
    """`usage`, of a message or of an event, as it is read and written."""

    input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    output_tokens: int | None = None
    output_tokens_details: OutputDetails | msgspec.UnsetType | None = msgspec.UNSET


def write_usage(usage: Usage | None) -> TokenCounts:
    """The counts of a whole reply; zeros when the engine did not count."""
    if usage is None:
        return TokenCounts(0, 0, 0, 0)
    counts = write_prompt(usage.prompt_tokens, usage.cached_tokens)
    counts.output_tokens = usage.completion_tokens
    if usage.reasoning_tokens is not None:
        counts.output_tokens_details = OutputDetails(usage.reasoning_tokens)
    return counts


def write_prompt(prompt_tokens: int | None, cached_tokens: int | None) -> TokenCounts:
    """The counts before the first token was sampled."""
    prompt, cached = prompt_tokens or 0, cached_tokens or 0
    return TokenCounts(max(prompt - cached, 0), 0, cached, 0)


def read_usage(counts: TokenCounts) -> Usage:
    """Counts of a reply of this dialect."""
    details = counts.output_tokens_details
    return Usage(
        prompt_tokens=_prompt(counts),
        completion_tokens=counts.output_tokens or 0,
        cached_tokens=counts.cache_read_input_tokens,
        reasoning_tokens=details.thinking_tokens if isinstance(details, OutputDetails) else None,
    )


def _prompt(counts: TokenCounts) -> int:
    return (
        (counts.input_tokens or 0) + (counts.cache_creation_input_tokens or 0) + (counts.cache_read_input_tokens or 0)
    )
