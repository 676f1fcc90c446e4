"""How much there is to learn from a set of groups: spread within each, and groups that teach nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from polarproxy.credit.groups import Group


@dataclass(frozen=True, slots=True)
class RewardSummary:
    """Rewards over all groups."""

    groups: int
    scored_sessions: int
    unscored_sessions: int
    flat_groups: tuple[str, ...]
    """Groups whose rewards do not differ: their advantages are 0."""
    mean: float | None
    """Over sessions. None: nothing is scored."""
    within_group_std: float | None
    """Mean of the groups' standard deviations. None: no group has two scored sessions."""


def summarise(groups: Sequence[Group]) -> RewardSummary:
    """The summary of these groups."""
    rewards = [reward for group in groups for reward in group.values.tolist()]
    spreads = [group.std for group in groups if group.std is not None]
    return RewardSummary(
        groups=len(groups),
        scored_sessions=len(rewards),
        unscored_sessions=sum(len(group.unscored) for group in groups),
        flat_groups=tuple(group.group_id for group in groups if group.flat),
        mean=float(np.mean(rewards)) if rewards else None,
        within_group_std=float(np.mean(spreads)) if spreads else None,
    )
