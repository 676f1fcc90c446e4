"""What may be trained, and the reason for everything that may not."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np

from polarproxy.model import CallKind, CallStatus, Caveat, FinishReason
from polarproxy.trajectory.repeats import later_went_on, longer_try, superseded, used

if TYPE_CHECKING:
    from polarproxy.model import Call, Completion
    from polarproxy.trajectory.forest import Forest, Node

SENTINEL = -9000.0
"""vLLM writes −9999.0 for a value it could not give; nothing near it is a log-probability of a sampled token."""

TOP_LOGPROB = 1e-5
"""A log-probability above 0 is none; so much is left to the rounding of float32."""

TRAINED_KINDS = frozenset({CallKind.MAIN, CallKind.SUBAGENT})


class Reason(StrEnum):
    """Why a call, or one of its completions, is not trained."""

    REJECTED = "rejected"
    """The engine refused the request; nothing was sampled."""
    NOTHING_SAMPLED = "nothing_sampled"
    """The call ended before a token was sampled."""
    NO_TOKEN_IDS = "no_token_ids"
    """The engine gave no ids, of the prompt or of the completion."""
    NO_LOGPROBS = "no_logprobs"
    LOGPROB_COUNT = "logprob_count"
    """Not one log-probability per sampled token."""
    BAD_LOGPROB = "bad_logprob"
    """A log-probability is missing, not finite, the engine's sentinel, or above 0."""
    ABORTED = "aborted"
    """The client or the engine broke it off, and no later prompt contains it."""
    FAILED = "failed"
    """The engine failed or fell silent in the middle, and no later prompt contains it."""
    UNDELIVERED = "undelivered"
    """It is not known to have reached the client, and no later prompt contains it."""
    EXTRA_CHOICE = "extra_choice"
    """One of several choices, and no later prompt contains it."""
    SUPERSEDED = "superseded"
    """It was asked again: a retry of the client, or a stream that broke off."""
    DISCARDED_AT_LENGTH = "discarded_at_length"
    """Cut by the length limit; the harness asked again without it."""
    NOT_SAMPLED = "not_sampled"
    """Beam search chose the tokens."""
    MEDIA = "media"
    """The prompt held images or sound that its ids do not show."""
    OTHER_PROMPT = "other_prompt"
    """The engine was given an exact prompt and used another."""
    SEVERAL_PROMPTS = "several_prompts"
    """One request held several prompts, so no prompt is that of the call."""
    SIDE_CALL = "side_call"
    """Not part of the work: a title, a summary, a probe."""
    UNKNOWN_KIND = "unknown_kind"
    """It does not look like the work, and nothing says what it is."""
    REFUSED = "refused"
    """Its ids, log-probabilities or counts contradict each other, and a strict export was asked for."""


_BROKEN_OFF = {
    CallStatus.ABORTED: Reason.ABORTED,
    CallStatus.ENGINE_ERROR: Reason.FAILED,
    CallStatus.TIMEOUT: Reason.FAILED,
}


_WHOLE_CALL = {CallStatus.REJECTED: Reason.REJECTED} | _BROKEN_OFF


def why_not_whole(call: Call) -> Reason:
    """Why a call without prompt ids, or without a completion, is left out as a whole."""
    if call.status in _WHOLE_CALL:
        return _WHOLE_CALL[call.status]
    return Reason.SEVERAL_PROMPTS if call.caveat is Caveat.SEVERAL_PROMPTS else Reason.NO_TOKEN_IDS


def untrainable_tokens(completion: Completion) -> Reason | None:
    """What is wrong with the tokens themselves. None: nothing."""
    if completion.logprobs is None:
        return Reason.NO_LOGPROBS
    if len(completion.logprobs) != len(completion.token_ids):
        return Reason.LOGPROB_COUNT
    values = completion.logprobs.array
    if not np.isfinite(values).all() or (values <= SENTINEL).any() or (values > TOP_LOGPROB).any():
        return Reason.BAD_LOGPROB
    return None


def _unused(node: Node) -> Reason | None:
    """What is wrong with a completion that no later prompt contains. None: nothing."""
    call = node.captured.call
    if call.status in _BROKEN_OFF:
        return _BROKEN_OFF[call.status]
    if node.completion.finish_reason is FinishReason.ABORT:
        return Reason.ABORTED
    if not node.captured.delivered:
        return Reason.UNDELIVERED
    if node.completion.index > 0:
        return Reason.EXTRA_CHOICE
    return None


def _discarded(forest: Forest, place: int) -> bool:
    """Whether its agent asked the same prompt again later and the harness went on from that answer instead.

    Siblings of which none is continued all stand. A later prompt that only begins with this one is no sign: behind it
    stands this reply, told again in other tokens.
    """
    node = forest.nodes[place]
    if node.completion.finish_reason is not FinishReason.LENGTH:
        return False
    return longer_try(forest, place) is not None or later_went_on(forest, place)


def _without_tokens(completion: Completion) -> Reason:
    """An engine that says why it finished has sampled something, whether it shows the ids or not."""
    ended = completion.finish_reason not in (None, FinishReason.ABORT)
    return Reason.NO_TOKEN_IDS if ended else Reason.NOTHING_SAMPLED


def why_not(forest: Forest, place: int) -> Reason | None:
    """Why the completion at this place of the forest is not trained. None: it is."""
    node = forest.nodes[place]
    if not len(node.completion.token_ids):
        return _without_tokens(node.completion)
    wrong = untrainable_tokens(node.completion)
    if wrong is not None:
        return wrong
    if node.captured.call.caveat is not None:
        return Reason(node.captured.call.caveat.value)
    if node.captured.kind not in TRAINED_KINDS:
        return Reason.UNKNOWN_KIND if node.captured.kind is CallKind.UNKNOWN else Reason.SIDE_CALL
    if used(forest, place):
        return None
    if superseded(forest, place) is not None:
        return Reason.SUPERSEDED
    return _unused(node) or (Reason.DISCARDED_AT_LENGTH if _discarded(forest, place) else None)
