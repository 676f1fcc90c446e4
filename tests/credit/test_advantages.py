"""Session-level formulas, by hand; and never a million out of nothing."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from polarproxy.credit.advantages import EPSILON, dr_grpo, grpo, rloo, soft_overlong, weighted_whitening

REWARDS = st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=8)
FORMULAS = [grpo, dr_grpo, rloo]


def of(*values: float) -> NDArray[np.float64]:
    return np.array(values, dtype=np.float64)


GRPO = [
    # mean 1/2, deviations ±1/2, variance 2·(1/4)/1 = 1/2
    ((1.0, 0.0), (0.5 / (math.sqrt(0.5) + 1e-6), -0.5 / (math.sqrt(0.5) + 1e-6))),
    # mean 1/4, variance (3·(1/16) + 9/16)/3 = 1/4
    ((1.0, 0.0, 0.0, 0.0), (0.75 / 0.500001, -0.25 / 0.500001, -0.25 / 0.500001, -0.25 / 0.500001)),
    # mean 2, deviations -1, 0, 1, variance 2/2 = 1
    ((1.0, 2.0, 3.0), (-1 / 1.000001, 0.0, 1 / 1.000001)),
    # mean -1, deviations 2, -2, variance 8/1
    ((1.0, -3.0), (2 / (math.sqrt(8) + 1e-6), -2 / (math.sqrt(8) + 1e-6))),
]
DR_GRPO = [((1.0, 0.0), (0.5, -0.5)), ((1.0, 0.0, 0.0, 0.0), (0.75, -0.25, -0.25, -0.25)), ((3.0, 5.0), (-1.0, 1.0))]
RLOO = [
    ((1.0, 0.0), (1.0, -1.0)),
    # 1 - 0; 0 - 1/3
    ((1.0, 0.0, 0.0, 0.0), (1.0, -1 / 3, -1 / 3, -1 / 3)),
    # 1 - 2.5, 2 - 2, 3 - 1.5
    ((1.0, 2.0, 3.0), (-1.5, 0.0, 1.5)),
]


@pytest.mark.parametrize(("rewards", "expected"), GRPO)
def test_grpo_by_hand(rewards: tuple[float, ...], expected: tuple[float, ...]) -> None:
    np.testing.assert_allclose(grpo(of(*rewards)), expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize(("rewards", "expected"), DR_GRPO)
def test_dr_grpo_by_hand(rewards: tuple[float, ...], expected: tuple[float, ...]) -> None:
    np.testing.assert_allclose(dr_grpo(of(*rewards)), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("rewards", "expected"), RLOO)
def test_rloo_by_hand(rewards: tuple[float, ...], expected: tuple[float, ...]) -> None:
    np.testing.assert_allclose(rloo(of(*rewards)), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("formula", FORMULAS)
@given(reward=st.floats(-1e12, 1e12), count=st.integers(0, 8))
def test_rewards_that_do_not_differ_give_zero(formula: type, reward: float, count: int) -> None:
    """A group of one and a group of none among them."""
    assert formula(of(*[reward] * count)).tolist() == [0.0] * count


@pytest.mark.parametrize("formula", FORMULAS)
def test_rounding_errors_do_not_become_advantages(formula: type) -> None:
    assert formula(of(0.1 + 0.2, 0.3)).tolist() == [0.0, 0.0]


@pytest.mark.parametrize("formula", FORMULAS)
@given(rewards=REWARDS)
def test_advantages_are_centred_and_in_the_order_of_rewards(formula: type, rewards: list[float]) -> None:
    values = formula(of(*rewards))
    assert np.isfinite(values).all()
    assert abs(values.sum()) < 1e-6 * max(1.0, np.abs(values).max())
    for one, other in zip(range(len(rewards)), range(1, len(rewards)), strict=False):
        assert (values[one] - values[other]) * (rewards[one] - rewards[other]) >= 0


@given(REWARDS)
def test_grpo_is_bounded(rewards: list[float]) -> None:
    assert np.abs(grpo(of(*rewards))).max() <= len(rewards)


@pytest.mark.parametrize("formula", FORMULAS)
@given(data=st.data(), rewards=REWARDS)
def test_the_order_of_sessions_does_not_matter(formula: type, data: st.DataObject, rewards: list[float]) -> None:
    order = data.draw(st.permutations(range(len(rewards))))
    np.testing.assert_allclose(formula(of(*rewards)[order]), formula(of(*rewards))[order], rtol=1e-9, atol=1e-9)


@given(REWARDS, st.floats(0.5, 100), st.floats(-100, 100))
def test_grpo_knows_no_scale_and_no_shift_and_dr_grpo_no_shift(
    rewards: list[float], scale: float, shift: float
) -> None:
    plain = of(*rewards)
    if plain.std(ddof=1) < 1e-2:
        return
    np.testing.assert_allclose(grpo(plain * scale + shift), grpo(plain), atol=1e-3)
    np.testing.assert_allclose(dr_grpo(plain * scale + shift), dr_grpo(plain) * scale, rtol=1e-6, atol=1e-6)


@given(REWARDS)
def test_rloo_is_dr_grpo_scaled(rewards: list[float]) -> None:
    count = len(rewards)
    np.testing.assert_allclose(rloo(of(*rewards)), dr_grpo(of(*rewards)) * count / (count - 1), rtol=1e-9, atol=1e-9)


def test_the_soft_penalty_by_hand() -> None:
    """Limit 100, buffer 20: nothing up to 80, half at 90, all from 100 on."""
    assert soft_overlong(of(0, 80, 85, 90, 100, 500), 100, 20).tolist() == [0.0, 0.0, -0.25, -0.5, -1.0, -1.0]


@given(REWARDS)
def test_equal_weights_whiten_as_grpo_does(rewards: list[float]) -> None:
    np.testing.assert_allclose(
        weighted_whitening(of(*rewards), np.full(len(rewards), 0.3)), grpo(of(*rewards)), atol=1e-9
    )


def test_weights_by_hand() -> None:
    """Values 1, 1, 0 with weights 1/2, 1/2, 1: scaled 3/4, 3/4, 3/2; mean 1/2; variance (3/16 + 3/16 + 3/8) / 2 = 3/8."""
    expected = 0.5 / (math.sqrt(3 / 8) + EPSILON)
    whitened = weighted_whitening(of(1.0, 1.0, 0.0), of(0.5, 0.5, 1.0))
    np.testing.assert_allclose(whitened, [expected, expected, -expected], atol=1e-12)
