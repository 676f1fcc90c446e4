"""Whether a session has the turns that a reward speaks of."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from polarproxy.cli.recipes import rebuilt
from polarproxy.credit.rollouts import of_trajectory
from polarproxy.errors import BadReward, StoreDamaged

if TYPE_CHECKING:
    from collections.abc import Sequence

    from polarproxy.model import Reward
    from polarproxy.store.repository import Repository
    from polarproxy.trajectory.recipes import Recipe


def check_calls(repository: Repository, session_id: str, reward: Reward) -> None:
    """Raises `BadReward` when a reward speaks of a call that the session does not have."""
    named = [turn.call_id for turn in reward.turns if turn.call_id is not None]
    known = {entry.call_id for entry in repository.call_summaries(session_id)} if named else set()
    for call_id in named:
        if call_id not in known:
            raise BadReward(f"session {session_id} has no call {call_id!r}; `polarproxy sessions show` lists its calls")


def unmatched(
    repository: Repository, session_id: str, reward: Reward, recipes: Sequence[Recipe] | None = None
) -> str | None:
    """What is to be said of turn rewards that count for no turn as the session is now; None: nothing.

    It is no error: a reward may be set before the calls that it speaks of arrive. `recipes` None reads them.
    """
    if not reward.turns:
        return None
    session = replace(repository.session(session_id), reward=reward)
    try:
        seen = of_trajectory(session, rebuilt(session, repository.calls(session_id), recipes).trajectory)
    except StoreDamaged as error:
        return f"session {session_id} cannot be rebuilt, so nobody knows whether it has these turns: {error}"
    if not seen.unmatched:
        return None
    count = len({call_id for call_id, _ in (turn.key for turn in seen.turns)})
    there = ("no trained turn", "one trained turn, turn 0")[count] if count < 2 else f"trained turns 0 to {count - 1}"
    return (
        f"session {session_id} has {there} so far, and so the reward of {', '.join(seen.unmatched)} counts for nothing;"
        f" `polarproxy trajectories show {session_id}` shows what is trained"
    )
