"""Which trained turn a turn reward speaks of, where calls have several choices."""

from datetime import UTC, datetime

import pytest

from polarproxy.credit.rollouts import of_trajectory
from polarproxy.model import CapturedCall, Reward, Session, TurnReward
from polarproxy.trajectory.branches import build_trajectory
from polarproxy.trajectory.merging import MERGES
from tests.trajectory.build import Said, turn

WHEN = datetime(2026, 1, 1, tzinfo=UTC)
TWO = (Said([2]), Said([3], index=1))


def rewarded(
    calls: list[CapturedCall], *rewards: TurnReward, merge: str = "prefix_merging"
) -> dict[tuple[str, int], float]:
    """The rewards of turns as they are credited; those that speak of no turn, or of several, are in `UNPLACED`."""
    session = Session("s", WHEN, "path", reward=Reward(0.0, turns=rewards))
    rollout = of_trajectory(session, build_trajectory("s", calls, dict(MERGES)[merge]))
    placed = {one.key: one.reward for one in rollout.turns if one.reward is not None}
    return (
        placed | {(where, -1): 0.0 for where in rollout.unmatched} | {(where, -2): 0.0 for where in rollout.ambiguous}
    )


@pytest.mark.parametrize("merge", dict(MERGES))
def test_of_several_choices_the_one_that_was_gone_on_from_is_meant(merge: str) -> None:
    """The client took the second; the first arrived and is trained too."""
    calls = [turn(0, [1], *TWO), turn(1, [1, 3, 4], Said([5]))]
    for reward in (TurnReward(1.0, call_id="s-c0"), TurnReward(1.0, turn=0)):
        assert rewarded(calls, reward, merge=merge) == {("s-c0", 1): 1.0}


def test_turns_are_counted_by_call_and_not_by_choice() -> None:
    calls = [turn(0, [1], *TWO), turn(1, [1, 3, 4], Said([5]))]
    assert rewarded(calls, TurnReward(0.5, turn=1)) == {("s-c1", 0): 0.5}
    assert rewarded(calls, TurnReward(0.5, turn=2)) == {("turn 2", -1): 0.0}


def test_where_several_were_gone_on_from_the_reward_counts_for_none() -> None:
    calls = [turn(0, [1], *TWO), turn(1, [1, 3, 4], Said([5])), turn(2, [1, 2, 4], Said([6]))]
    assert rewarded(calls, TurnReward(1.0, call_id="s-c0")) == {("call s-c0", -2): 0.0}


def test_of_choices_of_which_none_was_gone_on_from_the_first_is_the_turn() -> None:
    assert rewarded([turn(0, [1], *TWO)], TurnReward(1.0, call_id="s-c0")) == {("s-c0", 0): 1.0}
