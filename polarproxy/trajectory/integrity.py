"""Whether what was recorded can be trusted: what is wrong, or doubtful, about single calls, each with a code.

An error means that ids, log-probabilities or counts contradict each other, so that a trainer would learn something that
did not happen; a strict export refuses its row. A warning is true, and something that a trainer must know.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np

from polarproxy.model import CallStatus, FinishReason, LogprobsMode
from polarproxy.model.plurals import counted
from polarproxy.trajectory.constraints import constraints
from polarproxy.trajectory.eligibility import SENTINEL, TOP_LOGPROB

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from polarproxy.model import Call, CapturedCall, Completion, Logprobs, Sampling


class Severity(StrEnum):
    """What is to be done about a finding."""

    ERROR = "error"
    WARNING = "warning"


class Code(StrEnum):
    """What was found."""

    NO_LOGPROBS = "no_logprobs"
    LOGPROB_COUNT = "logprob_count"
    MISSING_LOGPROB = "missing_logprob"
    SENTINEL_LOGPROB = "sentinel_logprob"
    INFINITE_LOGPROB = "infinite_logprob"
    POSITIVE_LOGPROB = "positive_logprob"
    USAGE_COMPLETION = "usage_completion"
    USAGE_PROMPT = "usage_prompt"
    NO_STOP_ID = "no_stop_id"
    PREFIX_BROKEN = "prefix_broken"
    TRAINED_TWICE = "trained_twice"
    NO_TOKEN_IDS = "no_token_ids"
    UNFAITHFUL = "unfaithful"
    LOGPROBS_MODE_UNKNOWN = "logprobs_mode_unknown"
    LOGPROBS_MODE_RAW = "logprobs_mode_raw"
    RAW_AT_TEMPERATURE = "raw_at_temperature"
    TEMPERATURE_UNKNOWN = "temperature_unknown"
    TEMPERATURE_0 = "temperature_0"
    TOP_P_BELOW_1 = "top_p_below_1"
    TOP_K_SET = "top_k_set"
    MIN_P_SET = "min_p_set"
    PENALTIES = "penalties"
    CONSTRAINED = "constrained"
    WEIGHTS_CHANGED = "weights_changed"
    MIXED_VERSIONS = "mixed_versions"
    MIXED_MODELS = "mixed_models"
    KIND_UNKNOWN = "kind_unknown"
    LINEAGE_DISAGREES = "lineage_disagrees"


_ERRORS = frozenset(
    {
        Code.LOGPROB_COUNT,
        Code.MISSING_LOGPROB,
        Code.SENTINEL_LOGPROB,
        Code.INFINITE_LOGPROB,
        Code.POSITIVE_LOGPROB,
        Code.USAGE_COMPLETION,
        Code.USAGE_PROMPT,
        Code.NO_STOP_ID,
        Code.PREFIX_BROKEN,
        Code.TRAINED_TWICE,
    }
)


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong or doubtful."""

    code: Code
    call_id: str
    detail: str
    """What was found, with the numbers, for a person to read."""
    choice: int | None = None
    """The completion that it is about. None: the call."""

    @property
    def severity(self) -> Severity:
        """An error makes its row untrustworthy."""
        return Severity.ERROR if self.code in _ERRORS else Severity.WARNING


def check_calls(calls: Iterable[CapturedCall]) -> Iterator[Finding]:
    """What there is to find in each call by itself, and beside the others in how completions end."""
    known = [captured.call for captured in calls]
    inside = _never_at_the_end(known)
    for call in known:
        yield from check_call(call)
        for completion in call.completions:
            yield from _ending(call, completion, inside.get(call.served_model, frozenset()))


def check_call(call: Call) -> Iterator[Finding]:
    """What there is to find in one call by itself."""
    if call.status is CallStatus.COMPLETED and not any(len(c.token_ids) for c in call.completions):
        yield Finding(Code.NO_TOKEN_IDS, call.call_id, "the engine gave no ids of what it sampled")
        return
    yield from _usage(call)
    for completion in call.completions:
        yield from _logprobs(call, completion)
    if any(len(completion.token_ids) for completion in call.completions):
        yield from (Finding(code, call.call_id, said) for code, said in doubts(call))
    if call.policy_version_min < call.policy_version_max:
        said = f"sampled while the weights went from version {call.policy_version_min} to {call.policy_version_max}"
        yield Finding(Code.WEIGHTS_CHANGED, call.call_id, said)


def _usage(call: Call) -> Iterator[Finding]:
    """The engine's own counts against the ids. Only a finished reply has counts that are final."""
    if call.usage is None or call.status is not CallStatus.COMPLETED or call.caveat is not None:
        return
    sampled = sum(len(completion.token_ids) for completion in call.completions)
    if call.usage.completion_tokens != sampled:
        said = f"the engine counted {counted(call.usage.completion_tokens, 'sampled token')}, recorded: {sampled}"
        yield Finding(Code.USAGE_COMPLETION, call.call_id, said)
    prompt = call.prompt_token_ids
    if prompt is not None and call.usage.prompt_tokens != len(prompt):
        said = f"the engine counted {counted(call.usage.prompt_tokens, 'prompt token')}, recorded: {len(prompt)}"
        yield Finding(Code.USAGE_PROMPT, call.call_id, said)


def _logprobs(call: Call, completion: Completion) -> Iterator[Finding]:
    count = len(completion.token_ids)
    if not count:
        return
    if completion.logprobs is None:
        said = f"{counted(count, 'sampled token')} without log-probabilities"
        yield Finding(Code.NO_LOGPROBS, call.call_id, said, completion.index)
        return
    if len(completion.logprobs) != count:
        said = f"log-probabilities: {len(completion.logprobs)}, for {counted(count, 'sampled token')}"
        yield Finding(Code.LOGPROB_COUNT, call.call_id, said, completion.index)
    for code, places in _bad_values(completion.logprobs):
        if places.size:
            said = f"{places.size} of {count}, the first at token {places[0]}"
            yield Finding(code, call.call_id, said, completion.index)


def _bad_values(logprobs: Logprobs) -> Iterator[tuple[Code, np.ndarray]]:
    values = logprobs.array
    # So nearly all are, and NaN is never.
    if ((values > SENTINEL) & (values <= TOP_LOGPROB)).all():
        return
    finite = np.isfinite(values)
    yield Code.MISSING_LOGPROB, np.flatnonzero(np.isnan(values))
    yield Code.INFINITE_LOGPROB, np.flatnonzero(np.isinf(values))
    yield Code.SENTINEL_LOGPROB, np.flatnonzero(finite & (values <= SENTINEL))
    yield Code.POSITIVE_LOGPROB, np.flatnonzero(finite & (values > TOP_LOGPROB))


def doubts(call: Call) -> Iterator[tuple[Code, str]]:
    """What a trainer must know of how the tokens of a call were sampled."""
    yield from _doubts(call.sampling)
    bent = constraints(call)
    if bent:
        yield Code.CONSTRAINED, f"sampled under {', '.join(bent)}: tokens that the policy might have said were shut out"


def _doubts(sampling: Sampling) -> Iterator[tuple[Code, str]]:
    temperature, mode = sampling.temperature, sampling.logprobs_mode
    if mode is LogprobsMode.UNKNOWN:
        yield Code.LOGPROBS_MODE_UNKNOWN, "the engine does not show whether its log-probabilities are raw or processed"
    if mode is LogprobsMode.RAW:
        yield Code.LOGPROBS_MODE_RAW, "log-probabilities of the raw logits, not of what was sampled from"
        if temperature not in (None, 0, 1):
            yield Code.RAW_AT_TEMPERATURE, f"raw log-probabilities ignore temperature {temperature}"
    if temperature is None:
        yield Code.TEMPERATURE_UNKNOWN, "neither the client nor the engine said the temperature"
    if temperature == 0:
        yield Code.TEMPERATURE_0, "sampled greedily"
    if sampling.top_p is not None and sampling.top_p < 1:
        yield Code.TOP_P_BELOW_1, f"sampled with top_p {sampling.top_p}"
    if sampling.top_k is not None and sampling.top_k > 0:
        yield Code.TOP_K_SET, f"sampled with top_k {sampling.top_k}"
    if sampling.min_p:
        yield Code.MIN_P_SET, f"sampled with min_p {sampling.min_p}"
    if sampling.presence_penalty or sampling.frequency_penalty or sampling.repetition_penalty not in (None, 1):
        yield Code.PENALTIES, "sampled with penalties, which depend on the text before"


_AT_A_STOP = frozenset({FinishReason.STOP, FinishReason.TOOL_CALLS})


def _never_at_the_end(calls: Iterable[Call]) -> Mapping[str | None, frozenset[int]]:
    """For each model, the ids after which sampling went on to an end by itself: none of them can be a stop id.

    What was cut proves nothing: a client may have asked for stop ids to be ignored (`ignore_eos`).
    """
    inside: dict[str | None, set[int]] = {}
    for call in calls:
        for completion in call.completions:
            if _ended_by_itself(call, completion):
                inside.setdefault(call.served_model, set()).update(np.unique(completion.token_ids.array[:-1]).tolist())
    return {model: frozenset(ids) for model, ids in inside.items()}


def _ended_by_itself(call: Call, completion: Completion) -> bool:
    """vLLM says `tool_calls` also of a reply with a call in it that was cut at its limit."""
    at_a_stop = completion.finish_reason in _AT_A_STOP and completion.stop_reason is None
    count, limit = len(completion.token_ids), call.sampling.max_tokens
    return at_a_stop and count > 0 and (limit is None or count < limit)


def _ending(call: Call, completion: Completion, inside: frozenset[int]) -> Iterator[Finding]:
    """A reply that ended by itself ends with a stop id; an id after which sampling went on elsewhere is none.

    A stop string ends a reply with any id, and so does a stop id that the client named.
    """
    if not _ended_by_itself(call, completion):
        return
    last = int(completion.token_ids.array[-1])
    if last in inside:
        said = f"it ended by itself, and its last id {last} is no stop id: elsewhere sampling went on after it"
        yield Finding(Code.NO_STOP_ID, call.call_id, said, completion.index)
