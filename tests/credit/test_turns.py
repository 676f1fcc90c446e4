"""Turn-level formulas, by hand."""

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from polarproxy.credit.advantages import grpo
from polarproxy.credit.rollouts import RolloutTurn
from polarproxy.credit.turns import process_advantages, returns, turn_rewards, whiten_turns
from tests.credit.build import rollout, turns

VALUES = st.lists(st.lists(st.floats(-100, 100), min_size=1, max_size=5).map(np.array), min_size=1, max_size=5)


def test_the_rewards_of_turns() -> None:
    broken = RolloutTurn(("c9", 0), 5, 0, 0.5, well_formed=False)
    made = rollout("s", 1.0, *turns(None, 0.25), broken)
    assert turn_rewards(made, 2.0, -0.1).tolist() == [0.0, 0.25, 0.5 - 0.1 + 2.0]
    assert turn_rewards(rollout("s", 1.0), 2.0).tolist() == []


def test_returns_by_hand() -> None:
    """1 + 0.9·(0 + 0.9·2) = 2.62"""
    np.testing.assert_allclose(returns(np.array([1.0, 0.0, 2.0]), 0.9), [2.62, 1.8, 2.0], atol=1e-12)


@given(st.lists(st.floats(-10, 10), max_size=6), st.floats(0, 1))
def test_a_return_is_the_reward_and_the_discounted_return_after_it(rewards: list[float], gamma: float) -> None:
    found = [*returns(np.array(rewards), gamma).tolist(), 0.0]
    for place, reward in enumerate(rewards):
        assert math.isclose(found[place], reward + gamma * found[place + 1], abs_tol=1e-9)


def test_equally_many_turns_are_whitened_as_one_group() -> None:
    rewards = [np.array([1.0, 2.0]), np.array([4.0, 0.0])]
    np.testing.assert_allclose(np.concatenate(whiten_turns(rewards)), grpo(np.array([1.0, 2.0, 4.0, 0.0])), atol=1e-9)


def test_a_session_counts_once_however_many_turns_it_has() -> None:
    """Three turns of 1 and one turn of 0: the mean is 1/2, not 3/4."""
    many, one = whiten_turns([np.ones(3), np.zeros(1)])
    np.testing.assert_allclose(many, -np.repeat(one, 3), atol=1e-12)
    assert many[0] > 0


@given(VALUES)
def test_sessions_weigh_the_same(values: list[np.ndarray]) -> None:
    whitened = whiten_turns(values)
    assert [len(own) for own in whitened] == [len(own) for own in values]
    assert abs(sum(own.mean() for own in whitened)) < 1e-6


def test_nothing_whitens_to_nothing() -> None:
    assert whiten_turns([]) == []
    assert [own.tolist() for own in whiten_turns([np.zeros(0), np.zeros(0)])] == [[], []]
    assert [own.tolist() for own in whiten_turns([np.zeros(0), np.ones(2)])] == [[], [0.0, 0.0]]


def test_process_supervision_by_hand() -> None:
    """Rewards [0, 1], [0, 0]: mean 1/4, variance 1/4, whitened -1/2, 3/2, -1/2, -1/2; sums from each turn on."""
    good, bad = process_advantages([np.array([0.0, 1.0]), np.array([0.0, 0.0])])
    unit = 0.5 / 0.500001
    np.testing.assert_allclose(good, [2 * unit * 0.5, 3 * unit * 0.5], atol=1e-9)
    np.testing.assert_allclose(bad, [-2 * unit * 0.5, -unit * 0.5], atol=1e-9)
