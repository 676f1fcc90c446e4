"""Groups: sibling sessions of one task, each counted once however many rows it yields."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from polarproxy.credit.rollouts import Rollout

FLAT = 1e-8
"""A standard deviation below this is none: dividing by it would make advantages of a million out of rounding errors."""


def is_flat(values: NDArray[np.float64]) -> bool:
    """Whether values `[n]` do not differ, so that nothing can be learnt from their differences. Fewer than two are flat."""
    return len(values) < 2 or float(values.std(ddof=1)) < FLAT or float(values.max()) == float(values.min())


@dataclass(frozen=True, slots=True)
class Group:
    """The rollouts of one group, in a fixed order."""

    group_id: str
    rollouts: tuple[Rollout, ...]
    """Those with a reward, by session id."""
    unscored: tuple[str, ...] = ()
    """Sessions without a reward: out of the loss and out of the baseline."""

    @property
    def session_ids(self) -> tuple[str, ...]:
        """The scored sessions."""
        return tuple(rollout.session_id for rollout in self.rollouts)

    @property
    def values(self) -> NDArray[np.float64]:
        """Rewards, float64 `[sessions]`."""
        return np.array([rollout.reward for rollout in self.rollouts], dtype=np.float64)

    @property
    def mean(self) -> float | None:
        """None: nothing is scored."""
        return float(self.values.mean()) if self.rollouts else None

    @property
    def std(self) -> float | None:
        """Sample standard deviation (n − 1), as TRL and verl take it. None: fewer than two are scored."""
        return float(self.values.std(ddof=1)) if len(self.rollouts) > 1 else None

    @property
    def flat(self) -> bool:
        """Whether its rewards do not differ, so that every group-relative advantage vanishes."""
        return is_flat(self.values)


def form_groups(rollouts: Iterable[Rollout]) -> list[Group]:
    """Groups by `group_id`, in its order."""
    members: dict[str, list[Rollout]] = {}
    for rollout in rollouts:
        members.setdefault(rollout.group_id, []).append(rollout)
    return [_group(group_id, members[group_id]) for group_id in sorted(members)]


def _group(group_id: str, rollouts: list[Rollout]) -> Group:
    ordered = sorted(rollouts, key=lambda rollout: rollout.session_id)
    return Group(
        group_id=group_id,
        rollouts=tuple(rollout for rollout in ordered if rollout.reward is not None),
        unscored=tuple(rollout.session_id for rollout in ordered if rollout.reward is None),
    )
