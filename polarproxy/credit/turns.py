"""The formulas of turn-level advantages: what a turn was worth, and what came of it later."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from polarproxy.credit.advantages import weighted_whitening

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from polarproxy.credit.rollouts import Rollout

    Values = NDArray[np.float64]


def turn_rewards(rollout: Rollout, outcome: float, format_penalty: float = 0.0) -> Values:
    """r_j, float64 `[turns]`: what was said of turn j (0 when nothing was), `format_penalty` where it broke the format, and
    `outcome` on the last one."""
    rewards = np.array(
        [(turn.reward or 0.0) + (0.0 if turn.well_formed else format_penalty) for turn in rollout.turns],
        dtype=np.float64,
    )
    if len(rewards):
        rewards[-1] += outcome
    return rewards


def returns(rewards: Values, gamma: float) -> Values:
    """R_j = Σ_{m ≥ j} γ^{m−j} r_m, float64 `[turns]`."""
    found = np.zeros(len(rewards))
    total = 0.0
    for place in range(len(rewards) - 1, -1, -1):
        total = rewards[place] + gamma * total
        found[place] = total
    return found


def whiten_turns(values: Sequence[Values]) -> list[Values]:
    """(v − mean) / (std + ε) over the turns of all sessions: one array `[turns]` a session, in and out.

    A session counts once: each of its turns by 1 / its number of turns. With equally many turns in every session that is the
    plain mean and standard deviation over all turns. Turns that do not differ give 0.
    """
    if not sum(map(len, values)):
        return [np.zeros(0) for _ in values]
    shares = np.concatenate([np.full(len(own), 1.0 / max(len(own), 1)) for own in values])
    whitened = weighted_whitening(np.concatenate(list(values)), shares)
    return np.split(whitened, np.cumsum([len(own) for own in values])[:-1])


def process_advantages(rewards: Sequence[Values]) -> list[Values]:
    """A_j = Σ_{m ≥ j} r̃_m with the turn rewards of a group whitened together: one array `[turns]` a session, in and out.

    Source: Shao et al. 2024, "DeepSeekMath" (arXiv 2402.03300), section 4.1.3 (process supervision), where a session counts
    once (see `whiten_turns`).
    """
    return [returns(own, 1.0) for own in whiten_turns(rewards)]
