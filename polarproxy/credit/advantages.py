"""Group-relative advantages. One session is one rollout for the baseline."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from numpy.typing import NDArray

    from polarproxy.credit.groups import Group

EPSILON = 1e-6


def grpo(group: Group) -> NDArray[np.float64]:
    """(r − mean) / (std + ε), float64 `[sessions]`, in the order of the group's sessions.

    Source: Shao et al. 2024, "DeepSeekMath", section 4.1 (outcome supervision). ε is 1e-6 and std the sample standard
    deviation (n − 1), as in verl. A group of one, or one whose rewards do not differ, gives 0 everywhere.
    """
    if group.flat:
        return np.zeros(len(group.rewards))
    values = group.values
    scaled: NDArray[np.float64] = (values - values.mean()) / (values.std(ddof=1) + EPSILON)
    return scaled


ESTIMATORS: tuple[tuple[str, Callable[[Group], NDArray[np.float64]]], ...] = (("grpo", grpo),)
"""The estimators by the name that `export --advantage` takes."""


def advantages(groups: Iterable[Group], name: str) -> dict[str, float]:
    """The advantage of every scored session. Raises `KeyError` for a name that is not in `ESTIMATORS`."""
    estimate = dict(ESTIMATORS)[name]
    return {
        session_id: float(value)
        for group in groups
        for session_id, value in zip(group.session_ids, estimate(group), strict=True)
    }
