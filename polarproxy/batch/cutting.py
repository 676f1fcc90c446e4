"""Rows that are too long for a trainer: their beginning is kept, their credit stays, and what is cut is counted."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from polarproxy.batch.sample import Sample


@dataclass(frozen=True, slots=True)
class Cut:
    """The rows of a session, none longer than wanted."""

    samples: tuple[Sample, ...]
    rows: int = 0
    """How many were cut."""
    tokens: int = 0
    """How many tokens were cut off."""
    trained_tokens: int = 0
    """How many of them were trained."""
    untrained_rows: int = 0
    """Rows that are gone: nothing before the cut is trained."""


def cut(samples: Sequence[Sample], max_tokens: int) -> Cut:
    """The rows of one session, each with its first `max_tokens` tokens.

    Advantages and `loss_weight` stay as they are. `session_tokens` and `session_logprob` speak of what is left, as a ratio of
    sequences needs them to; `call_ids` are those of the turns of which something is left.
    """
    if all(len(sample.token_ids) <= max_tokens for sample in samples):
        return Cut(tuple(samples))
    kept = [_first(sample, max_tokens) for sample in samples]
    left = [sample for sample in kept if sample.trained_tokens]
    trained = sum(sample.trained_tokens for sample in left)
    logprob = float(sum(_logprob(sample) for sample in left))
    long = [sample for sample in samples if len(sample.token_ids) > max_tokens]
    parents = [_parent(sample, kept) for sample in left]
    return Cut(
        samples=tuple(
            replace(sample, parent_branch=parent, shared_prefix=shared, session_tokens=trained, session_logprob=logprob)
            for sample, (parent, shared) in zip(left, parents, strict=True)
        ),
        rows=len(long),
        tokens=sum(len(sample.token_ids) - max_tokens for sample in long),
        trained_tokens=sum(sample.trained_tokens for sample in samples) - trained,
        untrained_rows=len(kept) - len(left),
    )


def _first(sample: Sample, size: int) -> Sample:
    if len(sample.token_ids) <= size:
        return sample
    turns = sample.turn_index[:size]
    return replace(
        sample,
        token_ids=sample.token_ids[:size],
        loss_mask=sample.loss_mask[:size],
        rollout_logprobs=sample.rollout_logprobs[:size],
        advantages=None if sample.advantages is None else sample.advantages[:size],
        policy_versions=sample.policy_versions[:size],
        turn_index=turns,
        call_ids=sample.call_ids[: int(turns.max(initial=-1)) + 1],
        shared_prefix=min(sample.shared_prefix, size),
    )


def _parent(sample: Sample, kept: Sequence[Sample]) -> tuple[int | None, int]:
    """The nearest row above that is not gone, and the tokens that it shares."""
    by_branch: dict[int | None, Sample] = {other.branch_index: other for other in kept}
    above, shared = by_branch.get(sample.parent_branch), sample.shared_prefix
    while above is not None:
        if above.trained_tokens:
            return above.branch_index, shared
        shared = min(shared, above.shared_prefix)
        above = by_branch.get(above.parent_branch)
    return None, 0


def _logprob(sample: Sample) -> float:
    return float(sample.rollout_logprobs[sample.loss_mask == 1].sum(dtype=np.float64))
