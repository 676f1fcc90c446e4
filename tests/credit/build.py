"""Rollouts in few words."""

from collections.abc import Sequence

from polarproxy.credit.groups import Group
from polarproxy.credit.rollouts import Rollout, RolloutTurn
from polarproxy.model import ComponentKind, RewardComponent


def turns(
    *rewards: float | None, subagent: bool = False, codes: Sequence[str] = (), first: int = 0
) -> tuple[RolloutTurn, ...]:
    """One turn of 10 tokens for each reward."""
    return tuple(
        RolloutTurn((f"c{first + place}", 0), 10, 0, reward, subagent, code=codes[place] if place < len(codes) else "")
        for place, reward in enumerate(rewards)
    )


def rollout(
    session_id: str,
    reward: float | None,
    *made: RolloutTurn,
    group_id: str = "g",
    cut: bool = False,
    metric: float | None = None,
    **components: float,
) -> Rollout:
    """A session with these turns and components."""
    parts = [RewardComponent(name, value) for name, value in components.items()]
    if metric is not None:
        parts.append(RewardComponent("watched", metric, ComponentKind.METRIC))
    return Rollout(session_id, group_id, reward, tuple(parts), made, cut)


def group(*rewards: float, group_id: str = "g") -> Group:
    """Sessions s0, s1, … with these rewards."""
    return Group(
        group_id, tuple(rollout(f"s{place}", reward, group_id=group_id) for place, reward in enumerate(rewards))
    )
