"""GRPO, by hand: (r - mean) / (std + 1e-6), one session one rollout, and never a million out of nothing."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from polarproxy.batch.sample import build_samples
from polarproxy.credit.advantages import EPSILON, ESTIMATORS, advantages, grpo
from polarproxy.credit.groups import Group, form_groups
from polarproxy.errors import InvalidValue
from polarproxy.model import Reward, Session
from polarproxy.trajectory.branches import build_trajectory
from tests.trajectory.build import WHEN, Said, turn

REWARDS = st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=8)


def group(*rewards: float) -> Group:
    return Group("g", tuple(f"s{place}" for place in range(len(rewards))), rewards, ())


BY_HAND = [
    # mean 1/2, deviations ±1/2, variance 2·(1/4)/1 = 1/2
    ((1.0, 0.0), (0.5 / (math.sqrt(0.5) + 1e-6), -0.5 / (math.sqrt(0.5) + 1e-6))),
    # mean 1/4, variance (3·(1/16) + 9/16)/3 = 1/4
    ((1.0, 0.0, 0.0, 0.0), (0.75 / 0.500001, -0.25 / 0.500001, -0.25 / 0.500001, -0.25 / 0.500001)),
    # mean 2, deviations -1, 0, 1, variance 2/2 = 1
    ((1.0, 2.0, 3.0), (-1 / 1.000001, 0.0, 1 / 1.000001)),
    # mean -1, deviations 2, -2, variance 8/1
    ((1.0, -3.0), (2 / (math.sqrt(8) + 1e-6), -2 / (math.sqrt(8) + 1e-6))),
]


@pytest.mark.parametrize(("rewards", "expected"), BY_HAND)
def test_by_hand(rewards: tuple[float, ...], expected: tuple[float, ...]) -> None:
    np.testing.assert_allclose(grpo(group(*rewards)), expected, rtol=0, atol=1e-9)


@given(st.floats(-1e12, 1e12), st.integers(1, 8))
def test_rewards_that_do_not_differ_give_zero(reward: float, count: int) -> None:
    """A group of one among them."""
    assert grpo(group(*[reward] * count)).tolist() == [0.0] * count


def test_rounding_errors_do_not_become_advantages() -> None:
    assert grpo(group(0.1 + 0.2, 0.3)).tolist() == [0.0, 0.0]


def test_nothing_scored_gives_nothing() -> None:
    assert grpo(Group("g", (), (), ("s",))).shape == (0,)


@given(REWARDS)
def test_advantages_are_centred_bounded_and_in_the_order_of_rewards(rewards: list[float]) -> None:
    values = grpo(group(*rewards))
    assert np.isfinite(values).all()
    assert abs(values.sum()) < 1e-6
    assert np.abs(values).max() <= len(rewards)
    for one in range(len(rewards)):
        for other in range(len(rewards)):
            assert (values[one] - values[other]) * (rewards[one] - rewards[other]) >= 0


def session(session_id: str, reward: float | None) -> Session:
    return Session(session_id, WHEN, group_id="g", reward=None if reward is None else Reward(reward))


def test_three_rows_of_one_session_and_one_of_another_have_the_baseline_of_two_sessions() -> None:
    """[1, 1, 1, 0] by rows: the mean is 0.5, not 0.75."""
    many, one = session("many", 1.0), session("one", 0.0)
    (formed,) = form_groups([many, one])
    assert formed.mean == 0.5
    credit = advantages([formed], "grpo")
    forks = build_trajectory("s", [turn(place, [place], Said([9])) for place in range(3)])
    single = build_trajectory("s", [turn(0, [1], Said([9]))])
    rows = build_samples(forks, many, credit["many"]) + build_samples(single, one, credit["one"])
    assert [row.reward for row in rows] == [1.0, 1.0, 1.0, 0.0]
    exact = 0.5 / (math.sqrt(0.5) + EPSILON)
    trained = [float(row.advantages[row.loss_mask == 1][0]) for row in rows if row.advantages is not None]
    assert trained == [pytest.approx(exact)] * 3 + [pytest.approx(-exact)]


def test_a_session_without_a_reward_has_no_advantage_and_moves_none() -> None:
    with_it = advantages(form_groups([session("a", 1.0), session("b", 0.0), session("c", None)]), "grpo")
    assert with_it == advantages(form_groups([session("a", 1.0), session("b", 0.0)]), "grpo")
    assert "c" not in with_it


def test_groups_do_not_mix() -> None:
    first, second = Group("g", ("a", "b"), (1.0, 0.0), ()), Group("h", ("c", "d"), (9.0, 9.0), ())
    both = advantages([first, second], "grpo")
    assert both == advantages([first], "grpo") | {"c": 0.0, "d": 0.0}


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_reward_that_is_no_number_never_gets_this_far(value: float) -> None:
    with pytest.raises(InvalidValue):
        session("a", value)


def test_an_unknown_estimator_is_a_key_error() -> None:
    assert [name for name, _ in ESTIMATORS] == ["grpo"]
    with pytest.raises(KeyError):
        advantages([], "gpro")
