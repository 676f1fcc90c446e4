"""Groups: sibling sessions of one task, each counted once however many rows it yields."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from polarproxy.model import Session

FLAT = 1e-8
"""A standard deviation below this is none: dividing by it would make advantages of a million out of rounding errors."""


@dataclass(frozen=True, slots=True)
class Group:
    """The scored sessions of one group, in a fixed order."""

    group_id: str
    session_ids: tuple[str, ...]
    rewards: tuple[float, ...]
    unscored: tuple[str, ...]
    """Sessions without a reward: out of the loss and out of the baseline."""

    @property
    def values(self) -> NDArray[np.float64]:
        """Rewards, float64 `[sessions]`."""
        return np.asarray(self.rewards, dtype=np.float64)

    @property
    def mean(self) -> float | None:
        """None: nothing is scored."""
        return float(self.values.mean()) if self.rewards else None

    @property
    def std(self) -> float | None:
        """Sample standard deviation (n − 1), as TRL and verl take it. None: fewer than two are scored."""
        return float(self.values.std(ddof=1)) if len(self.rewards) > 1 else None

    @property
    def flat(self) -> bool:
        """Whether its rewards do not differ, so that every group-relative advantage vanishes."""
        return self.std is None or self.std < FLAT or max(self.rewards) == min(self.rewards)


def form_groups(sessions: Iterable[Session]) -> list[Group]:
    """Groups by `group_id`, in its order; a session without one is a group of its own."""
    members: dict[str, list[Session]] = {}
    for session in sessions:
        key = session.group_id if session.group_id is not None else f"session:{session.session_id}"
        members.setdefault(key, []).append(session)
    return [_group(group_id, members[group_id]) for group_id in sorted(members)]


def _group(group_id: str, sessions: list[Session]) -> Group:
    ordered = sorted(sessions, key=lambda session: session.session_id)
    scored = [(session.session_id, session.reward.value) for session in ordered if session.reward is not None]
    return Group(
        group_id=group_id,
        session_ids=tuple(session_id for session_id, _ in scored),
        rewards=tuple(value for _, value in scored),
        unscored=tuple(session.session_id for session in ordered if session.reward is None),
    )
