"""Whether a set of rewards still teaches something: spread within groups, components that are dead, saturated or starving,
trends, and signs that the reward is gamed.

Everything is per session, in the order in which sessions were made; a session counts once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from polarproxy.credit.groups import form_groups, is_flat

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from datetime import datetime

    from numpy.typing import NDArray

    from polarproxy.credit.groups import Group
    from polarproxy.credit.rollouts import Rollout
    from polarproxy.trajectory.branches import Turn

    Values = NDArray[np.float64]

SATURATED = 0.95
"""A component is saturated when so many of the sessions have its largest value."""
STARVING = 0.01
"""A component is starving when it varies and yet makes up less of the variance of advantages."""
LEAST = 8
"""Fewer sessions have no trend."""
TREND = 2.5
"""A trend is one when correlation · √(n − 1) is larger: about 1 in 80 random orders has such a one."""


@dataclass(frozen=True, slots=True)
class Observed:
    """One session, as the monitor sees it."""

    rollout: Rollout
    made_at: datetime
    length: int | None = None
    """Sampled tokens. None: not known."""
    repetition: float | None = None
    """The share of runs of four sampled tokens that were sampled before. None: nobody looked."""
    policy_version: int | None = None
    """The oldest weights that sampled it. None: not known."""


@dataclass(frozen=True, slots=True)
class GroupSpread:
    """The rewards of one group."""

    group_id: str
    scored: int
    unscored: int
    mean: float | None
    std: float | None
    """None: fewer than two are scored."""
    flat: bool
    """Whether its rewards do not differ, so that it teaches nothing."""


@dataclass(frozen=True, slots=True)
class ComponentSpread:
    """One component, over all sessions that have it."""

    name: str
    sessions: int
    mean: float
    least: float
    most: float
    within_group_std: float | None
    """Mean of the standard deviations of groups with at least two sessions. None: there is no such group."""
    share: float | None
    """Of the variance of rewards within groups; those of all components sum to 1 where the reward is their weighted sum.
    None: rewards do not vary within groups, or sessions have different components."""
    flags: tuple[str, ...]
    """`dead`: never varies within a group. `saturated`. `starving`."""


@dataclass(frozen=True, slots=True)
class Trend:
    """How something changed over the sessions."""

    name: str
    first_half: float
    second_half: float
    correlation: float
    """With the place in the order, −1 to 1."""
    verdict: str
    """`rises`, `falls`, or `steady`."""


@dataclass(frozen=True, slots=True)
class Collapse:
    """The whole report."""

    groups: tuple[GroupSpread, ...]
    components: tuple[ComponentSpread, ...]
    trends: tuple[Trend, ...]
    signs: tuple[str, ...]
    """What a person should look at, in words."""

    @property
    def flat_groups(self) -> tuple[str, ...]:
        """Groups with at least one reward, and no spread."""
        return tuple(group.group_id for group in self.groups if group.flat and group.scored)

    @property
    def whole(self) -> bool:
        """Whether no group teaches anything."""
        scored = [group for group in self.groups if group.scored]
        return bool(scored) and all(group.flat for group in scored)


def observe(
    sessions: Sequence[Observed],
    weights: Mapping[str, float] | None = None,
    outcome: str | None = None,
    idle: Collection[str] | None = None,
) -> Collapse:
    """The report on sessions; trends are over the order in which they were made.

    `weights`: of the components in the reward; None: those that fit best. `outcome`: the component that says whether the task
    was done; None: the first one, or the reward where there are no components. `idle`: the groups that teach an estimator
    nothing; None: no estimator was asked.
    """
    sessions = sorted(sessions, key=lambda one: (one.made_at, one.rollout.session_id))
    groups = form_groups(one.rollout for one in sessions)
    names = list(dict.fromkeys(name for one in sessions for name in one.rollout.reward_components))
    shares = _shares(groups, names, weights)
    components = tuple(_component(name, groups, shares) for name in names)
    outcome = outcome if outcome is not None else names[0] if names else None
    learns = len({one.policy_version for one in sessions} - {None}) > 1
    trends = tuple(_trends(sessions, names, within=not learns))
    # Without other weights a change over time is one of the tasks, not of the policy.
    hacking = _hacking_signs({one.name: one for one in trends}, outcome) if learns else []
    return Collapse(
        groups=tuple(_group(group) for group in groups),
        components=components,
        trends=trends,
        signs=(*_group_signs(groups, idle), *_component_signs(components), *hacking),
    )


def _group(group: Group) -> GroupSpread:
    scored, unscored = len(group.rollouts), len(group.unscored)
    return GroupSpread(group.group_id, scored, unscored, group.mean, group.std, group.flat)


def _component(name: str, groups: Sequence[Group], shares: Mapping[str, float]) -> ComponentSpread:
    by_group = [np.array(_values(name, group.rollouts)) for group in groups]
    values = np.concatenate(by_group) if by_group else np.zeros(0)
    spreads = [float(own.std(ddof=1)) for own in by_group if len(own) > 1]
    dead = bool(spreads) and all(is_flat(own) for own in by_group)
    at_most = float((values == values.max()).mean()) if len(values) else 0.0
    share = shares.get(name)
    flags = []
    if dead:
        flags.append("dead")
    if len(values) and SATURATED <= at_most < 1.0:
        flags.append("saturated")
    if not dead and share is not None and abs(share) < STARVING:
        flags.append("starving")
    return ComponentSpread(
        name=name,
        sessions=len(values),
        mean=float(values.mean()) if len(values) else 0.0,
        least=float(values.min()) if len(values) else 0.0,
        most=float(values.max()) if len(values) else 0.0,
        within_group_std=float(np.mean(spreads)) if spreads else None,
        share=share,
        flags=tuple(flags),
    )


def _values(name: str, rollouts: Iterable[Rollout]) -> list[float]:
    """The values of a component, of those that have it."""
    return [one.reward_components[name] for one in rollouts if name in one.reward_components]


def _shares(groups: Sequence[Group], names: Sequence[str], weights: Mapping[str, float] | None) -> dict[str, float]:
    """w_k · Σ_g cov_g(c_k, r) / Σ_g var_g(r), with weights fitted by least squares where they are not known."""
    rows, rewards = [], []
    for group in groups:
        parts = [one.reward_components for one in group.rollouts]
        if len(parts) < 2 or any(name not in own for own in parts for name in names):
            continue
        table = np.array([[own[name] for name in names] for own in parts], dtype=np.float64)
        rows.append(table - table.mean(axis=0))
        rewards.append(group.values - group.values.mean())
    if not rows or not names:
        return {}
    table, reward = np.concatenate(rows), np.concatenate(rewards)
    variance = float(reward @ reward)
    if is_flat(reward):
        return {}
    fitted = (
        np.linalg.lstsq(table, reward, rcond=None)[0] if weights is None else [weights.get(name, 0.0) for name in names]
    )
    found = np.asarray(fitted) * (table.T @ reward) / variance
    return dict(zip(names, found.tolist(), strict=True))


def trend(name: str, values: Sequence[float]) -> Trend | None:
    """How values changed in their order. None: there are too few."""
    if len(values) < LEAST:
        return None
    own = np.asarray(values, dtype=np.float64)
    place = np.arange(len(own), dtype=np.float64)
    correlation = 0.0 if is_flat(own) else float(np.corrcoef(place, own)[0, 1])
    strong = abs(correlation) * np.sqrt(len(own) - 1) > TREND
    verdict = "steady" if not strong else "rises" if correlation > 0 else "falls"
    half = len(own) // 2
    return Trend(name, float(own[:half].mean()), float(own[half:].mean()), correlation, verdict)


def _trends(sessions: Sequence[Observed], names: Sequence[str], *, within: bool) -> list[Trend]:
    """`within`: only what changes within groups, that is, without what one task has and another has not."""
    scored = [one.rollout for one in sessions if one.rollout.reward is not None]
    series = {"reward": [(one.group_id, one.reward) for one in scored if one.reward is not None]}
    for name in names:
        parts = ((one.group_id, one.reward_components.get(name)) for one in scored)
        series[name] = [(group, value) for group, value in parts if value is not None]
    watched = [(one.rollout.group_id, one) for one in sessions]
    series["length"] = [(group, float(one.length)) for group, one in watched if one.length is not None]
    series["repetition"] = [(group, one.repetition) for group, one in watched if one.repetition is not None]
    found = (
        trend(name, _without_groups(values) if within else [value for _, value in values])
        for name, values in series.items()
    )
    return [one for one in found if one is not None]


def _without_groups(values: Sequence[tuple[str, float]]) -> list[float]:
    """Each value less the mean of its group, plus that of all."""
    if not values:
        return []
    own = np.array([value for _, value in values], dtype=np.float64)
    _, groups = np.unique([group for group, _ in values], return_inverse=True)
    means = np.bincount(groups, weights=own) / np.bincount(groups)
    found: list[float] = (own - means[groups] + own.mean()).tolist()
    return found


def _group_signs(groups: Sequence[Group], idle: Collection[str] | None) -> list[str]:
    scored = [group for group in groups if group.rollouts]
    flat = {group.group_id for group in scored if group.flat}
    if idle is None:
        what = "have no spread in their rewards: estimators that compare these within a group learn nothing from them"
        return [f"{len(flat)} of {len(scored)} groups {what}"] if flat else []
    both, others = flat.intersection(idle), set(idle) - flat
    signs = []
    if both:
        signs.append(f"{len(both)} of {len(scored)} groups have no spread in their rewards and teach nothing")
    if others:
        signs.append(f"{len(others)} of {len(scored)} groups teach nothing, though their rewards differ")
    return signs


def _component_signs(components: Sequence[ComponentSpread]) -> list[str]:
    signs = [f"{one.name} is {flag}" for one in components for flag in one.flags]
    saturated = [one.name for one in components if "saturated" in one.flags]
    dead = [one.name for one in components if "dead" in one.flags]
    if saturated and dead:
        signs.append(
            f"{', '.join(saturated)} saturates while {', '.join(dead)} does not vary: little is left to learn from"
        )
    return signs


def _hacking_signs(trends: Mapping[str, Trend], outcome: str | None) -> list[str]:
    """What rises while the outcome does not."""
    goal = trends.get(outcome or "reward")
    if goal is None or goal.verdict == "rises":
        return []
    others = [one for name, one in trends.items() if name not in (goal.name, "reward") and one.verdict == "rises"]
    signs = [f"{_rise(one.name, one)} while {goal.name} {_does(goal)}" for one in others]
    total = trends.get("reward")
    if outcome is not None and total is not None and total.verdict == "rises":
        signs.append(f"{_rise('the reward', total)} while {goal.name} {_does(goal)}")
    return signs


def _rise(name: str, one: Trend) -> str:
    return f"{name} rises ({one.first_half:.3g} to {one.second_half:.3g})"


def _does(one: Trend) -> str:
    return "falls" if one.verdict == "falls" else "does not"


def observed(rollout: Rollout, made_at: datetime, turns: Sequence[Turn]) -> Observed:
    """A session with its trained turns."""
    if not turns:
        return Observed(rollout, made_at)
    tokens = np.concatenate([turn.node.completion.token_ids.array for turn in turns])
    version = min(turn.node.captured.call.policy_version_min for turn in turns)
    return Observed(rollout, made_at, len(tokens), repetition(tokens), version)


def repetition(tokens: NDArray[np.int32], run: int = 4) -> float:
    """The share of runs of `run` tokens that occurred before, 0 to 1; 0 for fewer tokens than a run. Tokens int32 `[n]`."""
    count = len(tokens) - run + 1
    if count < 1:
        return 0.0
    # Runs are told apart by a 64-bit mixture of their tokens; two different ones are taken for the same once in 2**64.
    mixed = np.zeros(count, np.uint64)
    for place in range(run):
        mixed = mixed * np.uint64(0x9E3779B97F4A7C15) + tokens[place : place + count].astype(np.uint64)
        mixed ^= mixed >> np.uint64(29)
    # Sorting and counting changes is several times faster than `np.unique` here.
    mixed.sort()
    return float(1.0 - (1 + np.count_nonzero(mixed[1:] != mixed[:-1])) / count)
