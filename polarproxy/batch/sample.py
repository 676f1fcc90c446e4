"""The training row (canonical sample), and how a trajectory becomes rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeVar

import numpy as np

from polarproxy.errors import InvalidValue
from polarproxy.trajectory.integrity import doubts

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sized

    from numpy.typing import NDArray

    from polarproxy.model import Call, RewardComponent, Session
    from polarproxy.trajectory.branches import Branch, Trajectory

FORMAT_VERSION = 1

T = TypeVar("T")

Weighting = Literal["per_session", "per_token", "per_row"]


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """One row. All arrays have the same length L; position p speaks of token p."""

    token_ids: NDArray[np.int32]
    """`[L]`"""
    loss_mask: NDArray[np.uint8]
    """`[L]`; 1 where trained on."""
    rollout_logprobs: NDArray[np.float32]
    """`[L]`; of each sampled token under the policy that sampled it, NaN where not sampled or not known."""
    advantages: NDArray[np.float32] | None
    """`[L]`; 0 where the mask is 0. None: no credit was computed, which is not 0."""
    policy_versions: NDArray[np.int32]
    """`[L]`; the version in force when the call began, −1 where not sampled."""
    turn_index: NDArray[np.int32]
    """`[L]`; the completion's place in the branch, −1 where not sampled."""
    session_id: str
    group_id: str | None
    task_id: str | None
    branch_index: int
    parent_branch: int | None
    shared_prefix: int
    call_ids: tuple[str, ...]
    """The calls of the branch, in order of turns."""
    reward: float | None
    components: tuple[RewardComponent, ...]
    loss_weight: float
    temperature: float | None
    """Sampling parameters of the trained turns. None: not known, or not the same in all of them."""
    top_p: float | None
    top_k: int | None
    logprobs_mode: str
    """`raw`, `processed`, `unknown`; `mixed` when the trained turns differ."""
    harness: str | None
    model: str | None
    template_digest: str | None
    warnings: tuple[str, ...] = ()
    """What a trainer should know of the trained turns' sampling; counted in the report, no column of its own."""
    faithful: bool = True
    """Whether each trained token was sampled in exactly this context. Always true for `prefix_merging`."""
    format_version: int = FORMAT_VERSION

    def __post_init__(self) -> None:
        length = len(self.token_ids)
        arrays: dict[str, Sized] = {
            "loss_mask": self.loss_mask,
            "rollout_logprobs": self.rollout_logprobs,
            "policy_versions": self.policy_versions,
            "turn_index": self.turn_index,
        }
        if self.advantages is not None:
            arrays["advantages"] = self.advantages
        for name, array in arrays.items():
            if len(array) != length:
                raise InvalidValue(
                    f"branch {self.branch_index} of session {self.session_id}: {name} has {len(array)} values"
                    f" for {length} tokens"
                )

    @property
    def trained_tokens(self) -> int:
        """How many tokens are trained."""
        return int(self.loss_mask.sum())


def weights(trajectory: Trajectory, weighting: Weighting) -> list[float]:
    """The loss weight of each branch. `per_session`: the rows of a session share 1. `per_token`: they share 1 by their
    trained tokens. `per_row`: 1 each."""
    count = len(trajectory.branches)
    if weighting == "per_row":
        return [1.0] * count
    if weighting == "per_session":
        return [1.0 / count for _ in range(count)]
    trained = [branch.trained_tokens for branch in trajectory.branches]
    return [tokens / sum(trained) for tokens in trained]


def build_samples(
    trajectory: Trajectory, session: Session, advantage: float | None, weighting: Weighting = "per_session"
) -> list[Sample]:
    """The rows of a trajectory, one a branch. `advantage` None: no credit was computed for the session."""
    return [
        _build_sample(branch, session, advantage, weight)
        for branch, weight in zip(trajectory.branches, weights(trajectory, weighting), strict=True)
    ]


def _build_sample(branch: Branch, session: Session, advantage: float | None, weight: float) -> Sample:
    tokens = branch.token_ids.array
    length = len(tokens)
    mask = np.zeros(length, np.uint8)
    logprobs = np.full(length, np.nan, np.float32)
    versions = np.full(length, -1, np.int32)
    turns = np.full(length, -1, np.int32)
    for index, turn in enumerate(branch.turns):
        node = turn.node
        span = slice(turn.start, turn.stop)
        mask[span] = turn.trained
        versions[span] = node.captured.call.policy_version_min
        turns[span] = index
        recorded = node.completion.logprobs
        if recorded is not None and len(recorded) == len(node.completion.token_ids):
            logprobs[span] = recorded.array
    trained = [turn.node.captured.call for turn in branch.turns if turn.trained]
    modes = {call.sampling.logprobs_mode.value for call in trained}
    return Sample(
        token_ids=tokens,
        loss_mask=mask,
        rollout_logprobs=logprobs,
        advantages=None if advantage is None else mask.astype(np.float32) * np.float32(advantage),
        policy_versions=versions,
        turn_index=turns,
        session_id=session.session_id,
        group_id=session.group_id,
        task_id=session.task_id,
        branch_index=branch.index,
        parent_branch=branch.parent_branch,
        shared_prefix=branch.shared_prefix,
        call_ids=tuple(turn.node.captured.call.call_id for turn in branch.turns),
        reward=None if session.reward is None else session.reward.value,
        components=() if session.reward is None else session.reward.components,
        loss_weight=weight,
        temperature=_common(call.sampling.temperature for call in trained),
        top_p=_common(call.sampling.top_p for call in trained),
        top_k=_common(call.sampling.top_k for call in trained),
        logprobs_mode=modes.pop() if len(modes) == 1 else "mixed",
        harness=session.harness,
        model=_common(call.served_model for call in trained),
        template_digest=_common(call.template_digest for call in trained),
        warnings=tuple(sorted(set(_warnings(trained)))),
        faithful=branch.faithful,
    )


def _common(values: Iterable[T]) -> T | None:
    """The value that all have; None when they differ."""
    different = set(values)
    return different.pop() if len(different) == 1 else None


def _warnings(trained: list[Call]) -> Iterator[str]:
    for call in trained:
        yield from (code.value for code, _ in doubts(call.sampling))
    if len({call.sampling.logprobs_mode for call in trained}) > 1:
        yield "logprobs_mode_mixed"
    if len({(call.sampling.temperature, call.sampling.top_p, call.sampling.top_k) for call in trained}) > 1:
        yield "mixed_sampling"
