"""The estimators by name: from groups of rollouts to what every trained turn is credited with.

One session counts once in every baseline. A session without a reward is in none, and gets no advantage, which is not 0.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

from polarproxy.credit.advantages import dr_grpo, grpo, rloo, soft_overlong, weighted_whitening
from polarproxy.credit.groups import form_groups, is_flat
from polarproxy.credit.similarity import by_counts, ngram_cosine
from polarproxy.credit.turns import process_advantages, returns, turn_rewards, whiten_turns
from polarproxy.errors import InvalidValue

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from polarproxy.credit.groups import Group
    from polarproxy.credit.rollouts import Rollout, TurnKey
    from polarproxy.credit.similarity import Similarity

    Values = NDArray[np.float64]

Scope: TypeAlias = Literal["batch", "group"]
Overlong: TypeAlias = Literal["filter", "penalty", "keep"]
SubAgents: TypeAlias = Literal["share", "own", "exclude"]


@dataclass(frozen=True, slots=True)
class CreditOptions:
    """What an estimator can be told. Each says which one looks at it."""

    gamma: float = 0.9
    """`gtpo`: discount of later turns."""
    format_penalty: float = -0.1
    """`gtpo`: what a turn gets that breaks the format."""
    scope: Scope = "batch"
    """`gtpo`: whether turns are normalised over all groups or within their own."""
    alpha: float = 0.5
    """`gtpo`: the most that a failed rollout gets for code like that of a success. 0: none."""
    success: float = 1.0
    """`gtpo`: rewards from here on are successes."""
    failure: float = 0.0
    """`gtpo`: rewards up to here are failures."""
    similarity: Similarity = ngram_cosine
    """`gtpo`: how alike the code of two rollouts is, from 0 to 1."""
    overlong: Overlong = "filter"
    """`dapo`: sessions that were cut at the length limit are out of the loss, or pay for their length, or stay."""
    overlong_limit: int | None = None
    """`dapo`: sampled tokens at which the penalty is −1. None: not said; `penalty` needs it."""
    overlong_buffer: int = 1024
    """`dapo`: the penalty begins so many tokens before the limit."""
    component_weights: Mapping[str, float] = field(default_factory=dict)
    """`gdpo`: weights of components; 1 for those that are not named."""
    subagents: SubAgents = "share"
    """All: sub-agents' turns share the session's advantage, are credited by their own turn rewards, or are not trained."""

    def __post_init__(self) -> None:
        if not 0 <= self.gamma <= 1:
            raise InvalidValue(f"gamma must lie in 0..1, not {self.gamma}")
        numbers = {
            "the format penalty": self.format_penalty,
            "alpha": self.alpha,
            "success": self.success,
            "failure": self.failure,
            **{f"the weight of component {name!r}": value for name, value in self.component_weights.items()},
        }
        for name, value in numbers.items():
            if not np.isfinite(value):
                raise InvalidValue(f"{name} must be a finite number, not {value}")
        if self.overlong_buffer <= 0:
            raise InvalidValue(f"the overlong buffer must be more than 0 tokens, not {self.overlong_buffer}")
        if self.overlong == "penalty" and self.overlong_limit is None:
            raise InvalidValue("the overlong penalty needs to know the limit: how many tokens a session may sample")
        if self.failure >= self.success:
            raise InvalidValue(f"failure ({self.failure}) must be less than success ({self.success})")


@dataclass(frozen=True, slots=True)
class Credit:
    """What an estimator says of each session."""

    sessions: Mapping[str, Values]
    """Advantages, float64: `[]` for all turns alike, or `[turns]`."""
    dropped: Mapping[str, str] = field(default_factory=dict)
    """Scored sessions that are out of the loss, and why."""


Estimate: TypeAlias = "Callable[[Sequence[Group], CreditOptions], Credit]"


def _split(groups: Sequence[Group], values: Iterable[Values]) -> dict[str, Values]:
    """Values of groups, `[sessions]` each, as one value `[]` a session."""
    return {
        session_id: np.asarray(value)
        for group, own in zip(groups, values, strict=True)
        for session_id, value in zip(group.session_ids, own, strict=True)
    }


def _by_group(formula: Callable[[Values], Values]) -> Estimate:
    return lambda groups, _options: Credit(_split(groups, (formula(group.values) for group in groups)))


def reinforce_plus_plus(groups: Sequence[Group], _options: CreditOptions) -> Credit:
    """(r − mean) / (std + ε) over all sessions of the batch; groups do not matter.

    Source: Hu et al. 2025, "REINFORCE++" (arXiv 2501.03262), equation 9, without its KL term, which is the trainer's. It
    mixes tasks: a session of a hard task gets a low advantage though it did well there.
    """
    return Credit(_split(groups, _whiten_batch([group.values for group in groups])))


def reinforce_plus_plus_baseline(groups: Sequence[Group], _options: CreditOptions) -> Credit:
    """r − mean of the group, then divided by the standard deviation over all sessions of the batch.

    Source: Hu et al. 2025, "REINFORCE++" (arXiv 2501.03262), the variant with a group baseline.
    """
    return Credit(_split(groups, _whiten_batch([dr_grpo(group.values) for group in groups])))


def _whiten_batch(values: list[Values]) -> list[Values]:
    if not values:
        return []
    together = np.concatenate(values)
    whitened = weighted_whitening(together, np.ones(len(together)))
    return np.split(whitened, np.cumsum([len(own) for own in values])[:-1])


def dapo(groups: Sequence[Group], options: CreditOptions) -> Credit:
    """As `grpo`; groups without spread are dropped, and so are sessions cut at the length limit, or they pay for their length.

    Source: Yu et al. 2025, "DAPO" (arXiv 2503.14476): dynamic sampling (section 3.2), overlong filtering and soft overlong
    punishment (section 3.4). The penalty is added before the group is normalised. A cut session that is filtered stays in the
    baseline, as in the paper, which masks its loss. Token-mean loss and the higher clip are the trainer's.
    """
    found: dict[str, Values] = {}
    dropped: dict[str, str] = {}
    for group in groups:
        rewards = group.values
        if options.overlong == "penalty" and options.overlong_limit is not None:
            lengths = np.array([rollout.sampled_tokens for rollout in group.rollouts], dtype=np.float64)
            rewards = rewards + soft_overlong(lengths, options.overlong_limit, options.overlong_buffer)
        if is_flat(rewards):
            dropped |= dict.fromkeys(group.session_ids, "flat_group")
            continue
        for rollout, value in zip(group.rollouts, grpo(rewards), strict=True):
            if options.overlong == "filter" and rollout.cut:
                dropped[rollout.session_id] = "overlong"
            else:
                found[rollout.session_id] = np.asarray(value)
    return Credit(found, dropped)


def gdpo(groups: Sequence[Group], options: CreditOptions) -> Credit:
    """Σ_k w_k · (c_k − mean_g) / std_g over components k, then (a − mean) / (std + ε) over the batch.

    Source: Liu et al. 2026, "GDPO: Group reward-Decoupled Normalization Policy Optimization" (arXiv 2601.05242). Each component
    is normalised alone, so that one with a large spread does not drown another. A session without a component is not in the
    baseline of that component and gets 0 from it; without any component it is dropped (`no_components`).
    """
    dropped = {
        rollout.session_id: "no_components"
        for group in groups
        for rollout in group.rollouts
        if not rollout.reward_components
    }
    sums = [_component_sum(group, options.component_weights) for group in groups]
    kept = [np.array([rollout.session_id not in dropped for rollout in group.rollouts], dtype=bool) for group in groups]
    whitened = _whiten_batch([values[which] for values, which in zip(sums, kept, strict=True)])
    found = {
        session_id: np.asarray(value)
        for group, which, values in zip(groups, kept, whitened, strict=True)
        for session_id, value in zip(np.array(group.session_ids, dtype=object)[which], values, strict=True)
    }
    return Credit(found, dropped)


def _component_sum(group: Group, weights: Mapping[str, float]) -> Values:
    parts = [rollout.reward_components for rollout in group.rollouts]
    total = np.zeros(len(parts))
    for name in sorted({name for own in parts for name in own}):
        present = np.array([name in own for own in parts])
        values = np.array([own[name] for own in parts if name in own], dtype=np.float64)
        if not is_flat(values):
            # Without ε: what it leaves of components that cancel out would be whitened to advantages of its own.
            total[present] += weights.get(name, 1.0) * (values - values.mean()) / values.std(ddof=1)
    return total


def grpo_turns(groups: Sequence[Group], _options: CreditOptions) -> Credit:
    """Turn rewards (the session's reward on the last turn) normalised over the group; a turn gets the sum from it on.

    Source and edge cases: `turns.process_advantages`. Needs no turn rewards, but without them it only normalises over turns.
    """
    found: dict[str, Values] = {}
    for group in groups:
        rewards = [turn_rewards(rollout, rollout.reward or 0.0) for rollout in group.rollouts]
        found |= dict(zip(group.session_ids, process_advantages(rewards), strict=True))
    return Credit(found)


def gtpo(groups: Sequence[Group], options: CreditOptions) -> Credit:
    """Discounted returns of turns, normalised over the batch or the group.

    r_j = format penalty of turn j (if it broke the format) + what was said of turn j + r_acc on the last turn;
    R_j = Σ_{m ≥ j} γ^{m−j} r_m; A_j = (R_j − mean) / (std + ε), where a session counts once (`turns.whiten_turns`).
    A failed rollout gets r_acc = r + α / |P| · Σ_{p ∈ P} sim(code, code_p), P the successes of its group; P empty adds 0.

    Source: "Empowering Multi-Turn Tool-Integrated Reasoning with Group Turn Policy Optimization" (arXiv 2511.14846), where
    failures have r = 0.
    """
    rewards = [
        returns(turn_rewards(rollout, outcome, options.format_penalty), options.gamma)
        for group in groups
        for rollout, outcome in zip(group.rollouts, _shaped(group, options), strict=True)
    ]
    ids = [session_id for group in groups for session_id in group.session_ids]
    if options.scope == "batch":
        return Credit(dict(zip(ids, whiten_turns(rewards), strict=True)))
    whitened: list[Values] = []
    for group in groups:
        whitened += whiten_turns(rewards[len(whitened) : len(whitened) + len(group.rollouts)])
    return Credit(dict(zip(ids, whitened, strict=True)))


def _shaped(group: Group, options: CreditOptions) -> list[float]:
    codes = ["\n".join(turn.code for turn in rollout.turns if turn.code) for rollout in group.rollouts]
    rewards: list[float] = group.values.tolist()
    successes = [code for code, reward in zip(codes, rewards, strict=True) if reward >= options.success]
    if not successes or not options.alpha:
        return rewards
    # The built-in one counts n-grams, which it need not do again for every pair.
    similarity = by_counts() if options.similarity is ngram_cosine else options.similarity
    share = options.alpha / len(successes)
    return [
        reward + share * sum(similarity(code, other) for other in successes) if reward <= options.failure else reward
        for code, reward in zip(codes, rewards, strict=True)
    ]


@dataclass(frozen=True, slots=True)
class Estimator:
    """A way to credit."""

    name: str
    """As `export --advantage` takes it."""
    estimate: Estimate
    needs_turns: bool = False
    """Whether it looks at the turns of rollouts, so that all calls must be read before the first row."""
    needs_code: bool = False
    """Whether it looks at what the turns say."""


ESTIMATORS: tuple[Estimator, ...] = (
    Estimator("grpo", _by_group(grpo)),
    Estimator("dr_grpo", _by_group(dr_grpo)),
    Estimator("rloo", _by_group(rloo)),
    Estimator("dapo", dapo, needs_turns=True),
    Estimator("reinforce++", reinforce_plus_plus),
    Estimator("reinforce++_baseline", reinforce_plus_plus_baseline),
    Estimator("gspo", _by_group(grpo)),
    Estimator("gdpo", gdpo),
    Estimator("grpo_turns", grpo_turns, needs_turns=True),
    Estimator("gtpo", gtpo, needs_turns=True, needs_code=True),
)


_ROUNDING = 1e-12
_LARGEST = float(np.finfo(np.float32).max)


def estimator(name: str) -> Estimator:
    """The estimator of this name; raises `InvalidValue` when there is none."""
    for known in ESTIMATORS:
        if known.name == name:
            return known
    raise InvalidValue(f"there is no estimator {name!r}; choose one of {', '.join(known.name for known in ESTIMATORS)}")


@dataclass(frozen=True, slots=True)
class SessionCredit:
    """What the trained turns of one session are credited with."""

    value: float | None = None
    """For every turn that is not in `turns`. None: such a turn is not trained."""
    turns: Mapping[TurnKey, float | None] = field(default_factory=dict)

    @property
    def teaches(self) -> bool:
        """Whether an advantage is not 0, rounding aside."""
        return any(value is not None and abs(value) > _ROUNDING for value in (self.value, *self.turns.values()))

    def of(self, key: TurnKey) -> float | None:
        """The advantage of a turn. None: it is not trained."""
        return self.turns.get(key, self.value)


def assign(
    rollouts: Iterable[Rollout], name: str, options: CreditOptions
) -> tuple[dict[str, SessionCredit], dict[str, str]]:
    """The credit of every scored session that is in the loss, and the reason for every scored one that is not.

    Raises `InvalidValue` for a name that is not in `ESTIMATORS`, for the weight of a component that no session has, and when
    an advantage is no finite float32.
    """
    rollouts = list(rollouts)
    _check_weights(rollouts, options)
    for rollout in rollouts:
        for value in (rollout.reward or 0.0, *rollout.reward_components.values()):
            if abs(value) > _LARGEST:
                raise InvalidValue(
                    f"session {rollout.session_id} has the reward {value:g}, which is too large for {name}: it is no finite"
                    " float32"
                )
    # What becomes too large for a float is refused by name below.
    with np.errstate(over="ignore", invalid="ignore"):
        found, dropped = _assign(rollouts, estimator(name).estimate, options)
    for session_id, credit in found.items():
        for own in (credit.value, *credit.turns.values()):
            if own is not None and not abs(own) <= _LARGEST:
                raise InvalidValue(
                    f"{name} gives session {session_id} the advantage {own}, which is no finite float32: its rewards, or"
                    " those of its group, are too large; set others, or choose another --advantage"
                )
    return found, dropped


def _check_weights(rollouts: Iterable[Rollout], options: CreditOptions) -> None:
    known = {name for rollout in rollouts for name in rollout.reward_components}
    for name in options.component_weights:
        if name not in known:
            names = ", ".join(sorted(known)) or "none at all"
            raise InvalidValue(f"no session has a component {name!r} that a weight could be for; there are: {names}")


def _assign(
    rollouts: Sequence[Rollout], estimate: Estimate, options: CreditOptions
) -> tuple[dict[str, SessionCredit], dict[str, str]]:
    if options.subagents == "share":
        credit = estimate(form_groups(rollouts), options)
        return {one.session_id: given for one, given in _spread(rollouts, credit)}, dict(credit.dropped)
    credit = estimate(form_groups(rollout.main_part() for rollout in rollouts), options)
    found = {one.session_id: given for one, given in _spread([one.main_part() for one in rollouts], credit)}
    theirs = _of_subagents(rollouts, estimate, options)
    for session_id, own in theirs.items():
        if session_id in found:
            found[session_id] = replace(found[session_id], turns={**found[session_id].turns, **own})
    return found, dict(credit.dropped)


def _spread(rollouts: Iterable[Rollout], credit: Credit) -> Iterator[tuple[Rollout, SessionCredit]]:
    for rollout in rollouts:
        values = credit.sessions.get(rollout.session_id)
        if values is None:
            continue
        if values.ndim:
            turns = zip((turn.key for turn in rollout.turns), values.tolist(), strict=True)
            yield rollout, SessionCredit(turns=dict(turns))
        else:
            yield rollout, SessionCredit(float(values))


def _of_subagents(
    rollouts: Sequence[Rollout], estimate: Estimate, options: CreditOptions
) -> dict[str, dict[TurnKey, float | None]]:
    """Sub-agents' turns: None, or what they earn among the sub-agents of the group by turn rewards of their own."""
    parts = [part for part in (rollout.subagent_part() for rollout in rollouts) if part.turns]
    found: dict[str, dict[TurnKey, float | None]] = {
        part.session_id: dict.fromkeys(turn.key for turn in part.turns) for part in parts
    }
    if options.subagents == "own":
        # The turn rewards are the rollout's reward already; they count once.
        plain = [replace(part, turns=tuple(replace(turn, reward=None) for turn in part.turns)) for part in parts]
        for part, given in _spread(plain, estimate(form_groups(plain), options)):
            found[part.session_id] = {turn.key: given.of(turn.key) for turn in part.turns}
    return found
