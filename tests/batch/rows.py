"""Rows at random, and rows in few words, for batches and files."""

from collections.abc import Sequence

import numpy as np
from hypothesis import strategies as st

from polarproxy.batch.sample import Sample
from polarproxy.model import RewardComponent


def row(
    tokens: Sequence[int],
    mask: Sequence[int] | None = None,
    *,
    credit: float | None = 0.5,
    session_id: str = "s",
    branch: int = 0,
    weight: float = 1.0,
) -> Sample:
    """Every sampled token is trained; its logprob is -(place + 1) / 4."""
    token_ids = np.asarray(tokens, np.int32)
    loss_mask = np.asarray([1] * len(tokens) if mask is None else mask, np.uint8)
    values = -(np.arange(len(tokens), dtype=np.float32) + 1) / 4
    return Sample(
        token_ids=token_ids,
        loss_mask=loss_mask,
        rollout_logprobs=np.where(loss_mask == 1, values, np.float32("nan")).astype(np.float32),
        advantages=None if credit is None else (loss_mask * credit).astype(np.float32),
        policy_versions=np.where(loss_mask == 1, 3, -1).astype(np.int32),
        turn_index=np.where(loss_mask == 1, 0, -1).astype(np.int32),
        session_id=session_id,
        group_id="g",
        task_id=None,
        branch_index=branch,
        parent_branch=None,
        shared_prefix=0,
        call_ids=("c0", "c1"),
        reward=1.0,
        components=(RewardComponent("outcome", 1.0), RewardComponent("style", 0.25)),
        loss_weight=weight,
        session_tokens=int(loss_mask.sum()),
        session_logprob=float(values[loss_mask == 1].sum()),
        temperature=1.0,
        top_p=None,
        top_k=0,
        logprobs_mode="processed",
        harness="calculator",
        model="tiny",
        template_digest=None,
    )


@st.composite
def rows(draw: st.DrawFn, *, least: int = 1, most: int = 6, longest: int = 7) -> list[Sample]:
    """Rows of one batch: all with credit, or none."""
    credit = draw(st.sampled_from([None, 0.5, -1.25]))
    made = []
    for branch in range(draw(st.integers(least, most))):
        tokens = draw(st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=longest))
        mask = draw(st.lists(st.integers(0, 1), min_size=len(tokens), max_size=len(tokens)))
        weight = draw(st.sampled_from([1.0, 0.5]))
        made.append(row(tokens, mask, credit=credit, branch=branch, weight=weight))
    return made
