"""The monitor, on groups whose figures are worked out by hand."""

from dataclasses import replace
from datetime import timedelta

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from polarproxy.credit.collapse import Observed, observe, repetition, trend
from polarproxy.credit.rollouts import Rollout
from tests.credit.build import rollout
from tests.trajectory.build import WHEN


def seen(*rollouts: Rollout) -> list[Observed]:
    return [Observed(one, WHEN) for one in rollouts]


def test_groups_without_spread() -> None:
    found = observe(
        seen(
            rollout("a", 1.0, group_id="easy"),
            rollout("b", 1.0, group_id="easy"),
            rollout("c", 1.0, group_id="fair"),
            rollout("d", 0.0, group_id="fair"),
            rollout("e", None, group_id="fair"),
            rollout("f", None, group_id="new"),
        )
    )
    assert [(one.group_id, one.scored, one.unscored, one.flat) for one in found.groups] == [
        ("easy", 2, 0, True),
        ("fair", 2, 1, False),
        ("new", 0, 1, True),
    ]
    assert (found.flat_groups, found.whole) == (("easy",), False)
    (sign,) = found.signs
    assert sign.startswith("1 of 2 groups have no spread in their rewards: estimators that compare")
    assert observe(seen(rollout("a", 1.0), rollout("b", 1.0))).whole
    assert not observe(seen(rollout("a", None))).whole
    assert not observe([]).whole


def test_dead_and_starving_components_and_their_shares() -> None:
    """r = tests + 0.01 style. Deviations ±1/2 each, style against tests in one group: shares by hand."""
    rollouts = [
        rollout("a", 1.00, group_id="g", tests=1, style=0, form=1),
        rollout("b", 0.01, group_id="g", tests=0, style=1, form=1),
        rollout("c", 1.01, group_id="h", tests=1, style=1, form=0),
        rollout("d", 0.00, group_id="h", tests=0, style=0, form=0),
    ]
    found = observe(seen(*rollouts))
    tests, style, form = found.components
    assert (tests.name, tests.sessions, tests.mean, tests.least, tests.most) == ("tests", 4, 0.5, 0.0, 1.0)
    assert tests.within_group_std == pytest.approx(0.5**0.5)
    # var: 2·0.495² + 2·0.505² = 1.0001; tests: 1 · (0.495 + 0.505) = 1; style: 0.01 · (-0.495 + 0.505) = 0.0001
    assert tests.share == pytest.approx(1 / 1.0001)
    assert style.share == pytest.approx(0.0001 / 1.0001)
    assert (tests.flags, style.flags, form.flags) == ((), ("starving",), ("dead",))
    given = observe(seen(*rollouts), {"tests": 1.0, "style": 0.01})
    assert given.components[0].share == pytest.approx(1 / 1.0001)


def test_a_saturated_component() -> None:
    rollouts = [rollout(f"s{place:02}", 1.0, tests=float(place != 0), style=1.0) for place in range(20)]
    found = observe(seen(*rollouts))
    assert [one.flags for one in found.components] == [("saturated",), ("dead",)]
    assert "tests saturates while style does not vary: little is left to learn from" in found.signs


@given(
    st.lists(st.tuples(st.floats(-1, 1), st.floats(-1, 1)), min_size=2, max_size=8),
    st.floats(0.1, 3),
    st.floats(0.1, 3),
)
def test_shares_sum_to_one_where_the_reward_is_the_weighted_sum(
    parts: list[tuple[float, float]], first: float, second: float
) -> None:
    rollouts = [
        rollout(f"s{place}", first * one + second * other, one=one, other=other)
        for place, (one, other) in enumerate(parts)
    ]
    if np.std([first * one + second * other for one, other in parts]) < 1e-3:
        return
    for weights in (None, {"one": first, "other": second}):
        shares = [one.share for one in observe(seen(*rollouts), weights).components]
        assert sum(share for share in shares if share is not None) == pytest.approx(1.0, abs=1e-6)


def test_trends() -> None:
    up = trend("x", [float(place) for place in range(10)])
    assert up is not None
    assert (up.first_half, up.second_half, up.verdict) == (2.0, 7.0, "rises")
    assert up.correlation == pytest.approx(1.0)
    down = trend("x", [float(-place) for place in range(8)])
    assert down is not None
    assert down.verdict == "falls"
    still = trend("x", [0.0, 1.0] * 8)
    assert still is not None
    assert still.verdict == "steady"
    flat = trend("x", [1.0] * 8)
    assert flat is not None
    assert (flat.correlation, flat.verdict) == (0.0, "steady")
    assert trend("x", [1.0] * 7) is None


def test_what_rises_while_the_outcome_does_not_is_a_sign() -> None:
    rollouts = [rollout(f"s{place:02}", place / 10, correct=float(place % 2), polite=place / 10) for place in range(16)]
    watched = [
        Observed(one, WHEN + timedelta(seconds=place), 100 + place, 0.1, place // 4)
        for place, one in enumerate(rollouts)
    ]
    signs = [sign for sign in observe(watched).signs if "while" in sign]
    assert signs == [
        "polite rises (0.35 to 1.15) while correct does not",
        "length rises (104 to 112) while correct does not",
        "the reward rises (0.35 to 1.15) while correct does not",
    ]
    same = [replace(one, policy_version=3) for one in watched]
    assert [sign for sign in observe(same).signs if "while" in sign] == []
    assert [sign for sign in observe(watched, outcome="polite").signs if "while" in sign] == []


def test_repetition_by_hand() -> None:
    """1 2 3 4 1 2 3 4: five runs of four, of which the last was there before."""
    assert repetition(np.array([1, 2, 3, 4, 1, 2, 3, 4], np.int32)) == pytest.approx(1 / 5)
    assert repetition(np.array([7] * 10, np.int32)) == pytest.approx(6 / 7)
    assert repetition(np.array([1, 2, 3], np.int32)) == 0.0
    assert repetition(np.zeros(0, np.int32)) == 0.0


@given(st.lists(st.integers(0, 3), max_size=30))
def test_repetition_counts_runs(tokens: list[int]) -> None:
    runs = [tuple(tokens[start : start + 4]) for start in range(len(tokens) - 3)]
    expected = 1 - len(set(runs)) / len(runs) if runs else 0.0
    assert repetition(np.array(tokens, np.int32)) == pytest.approx(expected)


def test_longer_tasks_are_no_trend_of_a_model_that_does_not_learn() -> None:
    """Two groups, one after the other; the sessions of the second are longer, by their task."""
    rollouts = [rollout(f"s{place:02}", place % 2, group_id=f"g{place // 8}") for place in range(16)]

    def verdict(version: int) -> str:
        watched = [
            Observed(one, WHEN + timedelta(seconds=place), 100 * (place // 8) + place % 2, 0.1, version * (place // 8))
            for place, one in enumerate(rollouts)
        ]
        return next(one.verdict for one in observe(watched).trends if one.name == "length")

    assert (verdict(0), verdict(1)) == ("steady", "rises")
