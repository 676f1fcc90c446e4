"""Rows of whole sessions at random, as exports give them: by group, session and branch."""

from collections.abc import Sequence

import numpy as np
from hypothesis import strategies as st

from polarproxy.batch.sample import Sample

IDS = st.integers(0, 2**31 - 1)
LOGPROBS = st.floats(-60, 0, width=32)
ADVANTAGES = st.floats(-4, 4, width=32)
Part = tuple[list[int], str, list[float], float, int]
"""Tokens, what they are (`context`, `sampled` and not trained, `trained`), their logprobs, advantage and version."""


def sample(
    parts: Sequence[Part],
    *,
    session_id: str = "s",
    group_id: str | None = "g",
    branch: int = 0,
    credit: bool = True,
    reward: float | None = 1.0,
    weight: float = 1.0,
    temperature: float | None = 1.0,
) -> Sample:
    """A row of these parts, one after the other; the parts that were sampled are its turns."""
    turn, arrays = 0, []
    for ids, what, logprobs, advantage, version in parts:
        sampled, trained = what != "context", what == "trained"
        for token, logprob in zip(ids, logprobs, strict=True):
            known = logprob if sampled else np.nan
            arrays.append(
                (token, trained, known, advantage * trained, version if sampled else -1, turn if sampled else -1)
            )
        turn += sampled
    columns = list(zip(*arrays, strict=True))
    mask = np.asarray(columns[1], np.uint8)
    return Sample(
        token_ids=np.asarray(columns[0], np.int32),
        loss_mask=mask,
        rollout_logprobs=np.asarray(columns[2], np.float32),
        advantages=np.asarray(columns[3], np.float32) if credit else None,
        policy_versions=np.asarray(columns[4], np.int32),
        turn_index=np.asarray(columns[5], np.int32),
        session_id=session_id,
        group_id=group_id,
        task_id=None,
        branch_index=branch,
        parent_branch=None,
        shared_prefix=0,
        call_ids=tuple(f"{session_id}-{branch}-{place}" for place in range(turn)),
        reward=reward,
        components=(),
        loss_weight=weight,
        session_tokens=int(mask.sum()),
        session_logprob=0.0,
        temperature=temperature,
        top_p=None,
        top_k=None,
        logprobs_mode="processed",
        harness="calculator",
        model="tiny",
        template_digest=None,
    )


@st.composite
def parts(draw: st.DrawFn) -> list[Part]:
    """A prompt, then turns with and without something between them, one of them trained, and perhaps something after."""

    def part(what: str) -> Part:
        ids = draw(st.lists(IDS, min_size=1, max_size=4))
        logprobs = [draw(LOGPROBS) for _ in ids]
        return ids, what, logprobs, draw(ADVANTAGES), draw(st.integers(0, 3))

    kinds = ["context", *draw(st.lists(st.sampled_from(["context", "sampled", "trained"]), max_size=4)), "trained"]
    return [part(what) for what in [*kinds, *draw(st.sampled_from([[], ["context"], ["sampled"]]))]]


@st.composite
def exports(draw: st.DrawFn, *, rewarded: bool = False) -> list[Sample]:
    """One to three groups (or sessions without one) of one to three sessions of one to three rows; all with credit, or none."""
    credit = draw(st.booleans())
    names = iter(range(100))
    made: list[Sample] = []
    for group in range(draw(st.integers(1, 3))):
        group_id = draw(st.sampled_from([f"g{group}", None]))
        for _ in range(draw(st.integers(1, 3))):
            session_id, rows = f"s{next(names)}", draw(st.integers(1, 3))
            reward = draw(st.floats(-2, 2, width=32) if rewarded or credit else st.sampled_from([None, 0.5]))
            made += [
                sample(
                    draw(parts()),
                    session_id=session_id,
                    group_id=group_id,
                    branch=branch,
                    credit=credit,
                    reward=reward,
                    # Thirds would not survive a format of 32 bits, which is not what is tested.
                    weight=draw(st.sampled_from([1.0, 0.5, 0.25])),
                )
                for branch in range(rows)
            ]
    return made
