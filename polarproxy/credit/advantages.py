"""The formulas of session-level advantages, over plain arrays. One session is one value.

All take rewards, float64 `[n]`, and give advantages, float64 `[n]`, in the same order. Standard deviations are those of a
sample (n − 1), as torch, TRL and verl take them. Values that do not differ (`groups.is_flat`), one value among them, give 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from polarproxy.credit.groups import is_flat

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Values = NDArray[np.float64]

EPSILON = 1e-6
"""Added to a standard deviation, as in verl."""


def grpo(rewards: Values) -> Values:
    """(r − mean) / (std + ε) over a group.

    Source: Shao et al. 2024, "DeepSeekMath" (arXiv 2402.03300), section 4.1.2 (outcome supervision). GSPO (Zheng et al. 2025,
    arXiv 2507.18071) takes the same advantages and differs in its importance ratio, which is one of whole sequences.
    """
    return np.zeros(len(rewards)) if is_flat(rewards) else (rewards - rewards.mean()) / (rewards.std(ddof=1) + EPSILON)


def dr_grpo(rewards: Values) -> Values:
    """r − mean over a group.

    Source: Liu et al. 2025, "Understanding R1-Zero-Like Training" (arXiv 2503.20783). The other half of it, a constant length
    normaliser of the loss, is the trainer's.
    """
    return np.zeros(len(rewards)) if is_flat(rewards) else rewards - rewards.mean()


def rloo(rewards: Values) -> Values:
    """r − mean of the others of the group.

    Source: Ahmadian et al. 2024, "Back to Basics" (arXiv 2402.14740). Equals (r − mean) · n / (n − 1). A group of one has no
    others, and gives 0.
    """
    count = len(rewards)
    return np.zeros(count) if is_flat(rewards) else rewards - (rewards.sum() - rewards) / (count - 1)


def soft_overlong(lengths: Values, limit: int, buffer: int) -> Values:
    """The penalty of a length, float64 `[n]`, from 0 to −1: 0 up to limit − buffer, −1 above limit, linear between.

    Source: Yu et al. 2025, "DAPO" (arXiv 2503.14476), equation 13 (soft overlong punishment).
    """
    return np.clip((limit - buffer - lengths) / buffer, -1.0, 0.0) * (lengths > limit - buffer)


def weighted_whitening(values: Values, weights: Values) -> Values:
    """(v − mean) / (std + ε) where a value counts as much as its weight; weights `[n]` are positive.

    The weights are scaled to sum to n, so that equal ones give the plain formula.
    """
    if is_flat(values):
        return np.zeros(len(values))
    scaled = weights * (len(weights) / weights.sum())
    centred = values - (scaled * values).sum() / len(values)
    whitened: Values = centred / (np.sqrt((scaled * centred**2).sum() / (len(values) - 1)) + EPSILON)
    return whitened
