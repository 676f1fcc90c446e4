"""Groups: sibling sessions, each once, scored or not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polarproxy.credit.groups import FLAT, Group, form_groups
from polarproxy.credit.rollouts import Rollout, of_session
from polarproxy.model import Reward, Session
from tests.credit.build import group, rollout
from tests.trajectory.build import WHEN


def session(session_id: str, reward: float | None, group_id: str | None = "g") -> Rollout:
    given = None if reward is None else Reward(reward)
    return of_session(Session(session_id, WHEN, group_id=group_id, reward=given))


def test_sessions_of_one_group_are_siblings_in_a_fixed_order() -> None:
    low, high, alone = rollout("a", 0.0), rollout("b", 1.0), rollout("z", 0.5, group_id="other")
    assert form_groups([high, alone, low]) == [Group("g", (low, high)), Group("other", (alone,))]


@given(st.permutations([("a", 1.0, "g"), ("b", None, "g"), ("c", 0.0, None), ("d", 2.0, "h")]))
def test_the_order_of_sessions_does_not_matter(entries: list[tuple[str, float | None, str | None]]) -> None:
    formed = form_groups([session(*entry) for entry in entries])
    assert [(one.group_id, one.session_ids, one.unscored) for one in formed] == [
        ("g", ("a",), ("b",)),
        ("h", ("d",), ()),
        ("session:c", ("c",), ()),
    ]


def test_a_session_without_a_group_stands_alone() -> None:
    formed = form_groups([session("a", 1.0, None), session("b", 0.0, None)])
    assert [one.session_ids for one in formed] == [("a",), ("b",)]
    assert all(one.flat for one in formed)


def test_a_group_that_is_called_like_a_session_without_one_is_another() -> None:
    named = [session("a", 1.0, "session:b"), session("b", 0.0, None), session("c", 0.5, "group:session:b")]
    assert [one.session_ids for one in form_groups(named)] == [("c",), ("a",), ("b",)]


def test_no_reward_is_not_zero_and_does_not_move_the_baseline() -> None:
    (formed,) = form_groups([session("a", 1.0), session("b", None), session("c", 0.0)])
    assert (formed.mean, formed.unscored) == (0.5, ("b",))
    (zeros,) = form_groups([session("a", 1.0), session("b", 0.0), session("c", 0.0)])
    assert zeros.mean == pytest.approx(1 / 3)


def test_nothing_scored() -> None:
    (formed,) = form_groups([session("a", None)])
    assert (formed.mean, formed.std, formed.flat) == (None, None, True)


def test_one_scored_session_has_a_mean_and_no_spread() -> None:
    assert (group(0.75).mean, group(0.75).std, group(0.75).flat) == (0.75, None, True)


def test_the_spread_is_that_of_a_sample() -> None:
    assert group(1.0, 0.0).std == pytest.approx(0.5**0.5, abs=1e-12)
    assert group(1.0, 2.0, 3.0, 4.0).std == pytest.approx((5 / 3) ** 0.5, abs=1e-12)


@given(st.floats(-1e12, 1e12), st.integers(2, 9))
def test_equal_rewards_are_flat_however_large(reward: float, count: int) -> None:
    assert group(*[reward] * count).flat


def test_rounding_errors_are_flat_and_small_differences_are_not() -> None:
    assert group(0.1 + 0.2, 0.3).flat
    assert group(0.5, 0.5 + FLAT / 2).flat
    assert not group(0.5, 0.5 + 1e-6).flat
