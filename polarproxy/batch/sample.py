"""The training row (canonical sample), and how a trajectory becomes rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, TypeVar

import numpy as np

from polarproxy.credit.estimators import SessionCredit
from polarproxy.credit.rollouts import turn_key
from polarproxy.errors import InvalidValue
from polarproxy.trajectory.branches import linked
from polarproxy.trajectory.integrity import Code, doubts

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence, Sized

    from numpy.typing import NDArray

    from polarproxy.model import Call, RewardComponent, Session
    from polarproxy.trajectory.branches import Branch, Trajectory, Turn

FORMAT_VERSION = 1
MIXED_MODELS = Code.MIXED_MODELS.value
"""Of a row whose trained turns were sampled by more than one model: no policy sampled it as a whole."""
MIXED_SAMPLING = "mixed_sampling"
"""Of a row whose trained turns were not all sampled at one temperature, top_p and top_k."""

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
    session_tokens: int
    """Trained tokens of the whole session, in all of its rows: |y| of a sequence-level ratio (GSPO)."""
    session_logprob: float
    """Sum of the rollout logprobs over them."""
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


def weights(trained: Sequence[int], weighting: Weighting) -> list[float]:
    """The loss weight of each row of a session, given how many tokens it trains (at least one).

    `per_session`: the rows share 1. `per_token`: they share 1 by their trained tokens. `per_row`: 1 each.
    """
    if weighting == "per_row":
        return [1.0] * len(trained)
    if weighting == "per_session":
        return [1.0 / len(trained) for _ in trained]
    return [tokens / sum(trained) for tokens in trained]


def build_samples(
    trajectory: Trajectory,
    session: Session,
    credit: SessionCredit | float | None,
    weighting: Weighting = "per_session",
) -> list[Sample]:
    """The rows of a trajectory, one a branch. `credit` None: none was computed for the session.

    Turns that the credit does not train are context; a branch that then trains nothing makes no row, and is no row's parent.
    """
    given = SessionCredit(credit) if isinstance(credit, float | int) else credit
    rows = [row for branch in trajectory.branches if (row := _row(branch, given)).trained_tokens]
    rows = [replace(row, branch=branch) for row, branch in zip(rows, linked(row.branch for row in rows), strict=True)]
    own = weights([row.trained_tokens for row in rows], weighting)
    logprob = sum(row.logprob for row in rows)
    tokens = sum(row.trained_tokens for row in rows)
    return [_build_sample(row, session, weight, tokens, logprob) for row, weight in zip(rows, own, strict=True)]


@dataclass(frozen=True, slots=True)
class _Row:
    """A branch with the turns that are trained in its row."""

    branch: Branch
    trained: tuple[tuple[Turn, float | None], ...]
    """With their advantages. None: no credit was computed."""

    @property
    def trained_tokens(self) -> int:
        return sum(len(turn.node.completion.token_ids) for turn, _ in self.trained)

    @property
    def logprob(self) -> float:
        """The sum over all trained tokens."""
        logprobs = [turn.node.completion.logprobs for turn, _ in self.trained]
        return float(sum(own.array.sum(dtype=np.float64) for own in logprobs if own is not None))


def _row(branch: Branch, credit: SessionCredit | None) -> _Row:
    turns = [turn for turn in branch.turns if turn.trained]
    if credit is None:
        return _Row(branch, tuple((turn, None) for turn in turns))
    values = ((turn, credit.of(turn_key(turn))) for turn in turns)
    return _Row(branch, tuple((turn, value) for turn, value in values if value is not None))


def _build_sample(row: _Row, session: Session, weight: float, tokens: int, logprob: float) -> Sample:
    branch = row.branch
    ids = branch.token_ids.array
    mask = np.zeros(len(ids), np.uint8)
    logprobs = np.full(len(ids), np.nan, np.float32)
    versions = np.full(len(ids), -1, np.int32)
    turns = np.full(len(ids), -1, np.int32)
    advantages = None if any(value is None for _, value in row.trained) else np.zeros(len(ids), np.float32)
    for index, turn in enumerate(branch.turns):
        span = slice(turn.start, turn.stop)
        versions[span] = turn.node.captured.call.policy_version_min
        turns[span] = index
        recorded = turn.node.completion.logprobs
        if recorded is not None and len(recorded) == len(turn.node.completion.token_ids):
            logprobs[span] = recorded.array
    for turn, value in row.trained:
        mask[turn.start : turn.stop] = 1
        if advantages is not None and value is not None:
            advantages[turn.start : turn.stop] = value
    trained = [turn.node.captured.call for turn, _ in row.trained]
    modes = {call.sampling.logprobs_mode.value for call in trained}
    return Sample(
        token_ids=ids,
        loss_mask=mask,
        rollout_logprobs=logprobs,
        advantages=advantages,
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
        session_tokens=tokens,
        session_logprob=logprob,
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
        yield from (code.value for code, _ in doubts(call))
    if any(call.policy_version_min != call.policy_version_max for call in trained):
        yield "policy_changed_within_turn"
    if len({(call.policy_version_min, call.policy_version_max) for call in trained}) > 1:
        yield "policy_changed_between_turns"
    if len({call.served_model for call in trained} - {None}) > 1:
        yield MIXED_MODELS
    if len({call.sampling.logprobs_mode for call in trained}) > 1:
        yield "logprobs_mode_mixed"
    if len({(call.sampling.temperature, call.sampling.top_p, call.sampling.top_k) for call in trained}) > 1:
        yield MIXED_SAMPLING
