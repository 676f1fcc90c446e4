"""Estimators over groups: by hand, and the laws that all of them keep."""

import math
import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polarproxy.batch.sample import build_samples
from polarproxy.credit.advantages import EPSILON
from polarproxy.credit.estimators import ESTIMATORS, CreditOptions, assign
from polarproxy.credit.rollouts import Rollout, RolloutTurn
from polarproxy.errors import InvalidValue
from polarproxy.model import Reward, Session
from polarproxy.trajectory.branches import build_trajectory
from tests.credit.build import rollout, turns
from tests.trajectory.build import WHEN, Said, turn

OPTIONS = CreditOptions()
NAMES = [known.name for known in ESTIMATORS]


def values(rollouts: list[Rollout], name: str, options: CreditOptions = OPTIONS) -> dict[str, list[float]]:
    """What each turn of each session is credited with; a session without turns has one."""
    found, _ = assign(rollouts, name, options)
    keys = {one.session_id: [own.key for own in one.turns] or [("none", 0)] for one in rollouts}
    credits = {name: [given.of(key) for key in keys[name]] for name, given in found.items()}
    return {name: [value for value in own if value is not None] for name, own in credits.items()}


def test_the_table() -> None:
    assert NAMES == [
        "grpo",
        "dr_grpo",
        "rloo",
        "dapo",
        "reinforce++",
        "reinforce++_baseline",
        "gspo",
        "gdpo",
        "grpo_turns",
        "gtpo",
    ]
    with pytest.raises(InvalidValue, match="choose one of grpo, dr_grpo"):
        assign([], "gpro", OPTIONS)


def test_three_rows_of_one_session_and_one_of_another_have_the_baseline_of_two_sessions() -> None:
    """[1, 1, 1, 0] by rows: the mean is 0.5, not 0.75."""
    found, _ = assign([rollout("many", 1.0), rollout("one", 0.0)], "grpo", OPTIONS)
    forks = build_trajectory("s", [turn(place, [place], Said([9])) for place in range(3)])
    single = build_trajectory("s", [turn(0, [1], Said([9]))])
    rows = build_samples(forks, Session("many", WHEN, reward=Reward(1.0)), found["many"])
    rows += build_samples(single, Session("one", WHEN, reward=Reward(0.0)), found["one"])
    assert [row.reward for row in rows] == [1.0, 1.0, 1.0, 0.0]
    exact = 0.5 / (math.sqrt(0.5) + EPSILON)
    trained = [float(row.advantages[row.loss_mask == 1][0]) for row in rows if row.advantages is not None]
    assert trained == [pytest.approx(exact)] * 3 + [pytest.approx(-exact)]


def test_groups_do_not_mix() -> None:
    first = [rollout("a", 1.0), rollout("b", 0.0)]
    second = [rollout("c", 9.0, group_id="h"), rollout("d", 9.0, group_id="h")]
    assert values(first + second, "grpo") == values(first, "grpo") | {"c": [0.0], "d": [0.0]}


def test_reinforce_plus_plus_by_hand() -> None:
    """Rewards 1, 0 | 3, 4: mean 2, variance (1 + 4 + 1 + 4) / 3. With group baselines: ±1/2, variance 1/3."""
    batch = [rollout("a", 1.0), rollout("b", 0.0), rollout("c", 3.0, group_id="h"), rollout("d", 4.0, group_id="h")]
    unit = 1 / (math.sqrt(10 / 3) + EPSILON)
    assert values(batch, "reinforce++") == {
        name: [pytest.approx(steps * unit)] for name, steps in zip("abcd", [-1, -2, 1, 2], strict=True)
    }
    half = 0.5 / (math.sqrt(1 / 3) + EPSILON)
    assert values(batch, "reinforce++_baseline") == {
        name: [pytest.approx(steps * half)] for name, steps in zip("abcd", [1, -1, -1, 1], strict=True)
    }


def test_dapo_drops_groups_without_spread_and_sessions_that_were_cut() -> None:
    flat = [rollout("e", 1.0, group_id="h"), rollout("f", 1.0, group_id="h")]
    fair = [rollout("a", 1.0), rollout("b", 0.0), rollout("c", 0.0, cut=True)]
    found, dropped = assign([*flat, *fair], "dapo", OPTIONS)
    assert dropped == {"c": "overlong", "e": "flat_group", "f": "flat_group"}
    # The cut one is in the baseline: mean 1/3, variance (4/9 + 1/9 + 1/9) / 2 = 1/3.
    assert found["a"].value == pytest.approx((2 / 3) / (math.sqrt(1 / 3) + EPSILON))
    kept, dropped = assign(fair, "dapo", CreditOptions(overlong="keep"))
    assert (set(kept), dropped) == ({"a", "b", "c"}, {})


def test_dapo_makes_length_cost_something() -> None:
    """10 tokens a turn; limit 30, buffer 20: one turn costs 0, two cost 1/2, three cost 1."""
    options = CreditOptions(overlong="penalty", overlong_limit=30, overlong_buffer=20)
    rollouts = [rollout(name, 1.0, *turns(*[None] * count)) for name, count in (("a", 1), ("b", 2), ("c", 3))]
    found, dropped = assign(rollouts, "dapo", options)
    # Rewards 1, 1/2, 0: mean 1/2, std 1/2.
    assert [found[name].value for name in "abc"] == [pytest.approx(1 / 1.000002), 0.0, pytest.approx(-1 / 1.000002)]
    assert dropped == {}


def test_gdpo_by_hand() -> None:
    """Components normalised alone, ±u each with u = 0.5 / sqrt(1/2): sums 0, 0 when they contradict each other."""
    against = [rollout("a", 9.0, tests=1, style=0.0), rollout("b", 9.0, tests=0, style=100.0)]
    assert values(against, "gdpo") == {"a": [0.0], "b": [0.0]}
    weighted = values(against, "gdpo", CreditOptions(component_weights={"style": 0.5}))
    # u - u/2 and its opposite, whitened over the batch of two: ±(1/2) / sqrt(1/2)
    assert weighted["a"] == [pytest.approx(math.sqrt(0.5), abs=1e-4)]
    assert weighted["b"] == [pytest.approx(-math.sqrt(0.5), abs=1e-4)]


def test_gdpo_watches_metrics_only_and_drops_what_has_no_components() -> None:
    rollouts = [
        rollout("a", 1.0, tests=1, metric=5.0),
        rollout("b", 1.0, tests=0, metric=9.0),
        rollout("c", 1.0, metric=1.0),
    ]
    found, dropped = assign(rollouts, "gdpo", OPTIONS)
    assert dropped == {"c": "no_components"}
    assert found["a"].value == pytest.approx(math.sqrt(0.5), abs=1e-4)


def test_gtpo_by_hand() -> None:
    """γ 0.9, two turns each. Success: R = 0.9, 1. Failure: R = 0, 0. Mean 1.9/4 = 0.475."""
    rollouts = [rollout("a", 1.0, *turns(None, None)), rollout("b", 0.0, *turns(None, None))]
    deviations = np.array([0.425, 0.525, -0.475, -0.475])
    expected = deviations / (math.sqrt((deviations**2).sum() / 3) + EPSILON)
    found = values(rollouts, "gtpo")
    np.testing.assert_allclose([*found["a"], *found["b"]], expected, atol=1e-9)
    assert values(rollouts, "gtpo", CreditOptions(scope="group")) == found


def test_gtpo_punishes_a_broken_format() -> None:
    broken = RolloutTurn(("c0", 0), 10, 0, well_formed=False)
    rollouts = [rollout("a", 1.0, broken), rollout("b", 1.0, *turns(None))]
    assert values(rollouts, "gtpo")["a"][0] < 0 < values(rollouts, "gtpo")["b"][0]
    assert values(rollouts, "gtpo", CreditOptions(format_penalty=0.0)) == {"a": [0.0], "b": [0.0]}


def test_gtpo_gives_a_failure_something_for_code_like_a_success() -> None:
    """r_acc = 0.5/1 · sim: 0.5 for the same code, 0 for other code. Rewards 1, 0.5, 0: mean 0.5, std 0.5."""
    rollouts = [
        rollout("good", 1.0, *turns(None, codes=["a = 1"])),
        rollout("near", 0.0, *turns(None, codes=["a = 1"])),
        rollout("far", 0.0, *turns(None, codes=["zzz"])),
    ]
    found = values(rollouts, "gtpo")
    np.testing.assert_allclose([found[name][0] for name in ("good", "near", "far")], [1.0, 0.0, -1.0], atol=1e-5)
    without = values(rollouts, "gtpo", CreditOptions(alpha=0.0))
    assert without["near"] == without["far"]
    # No success in the group: nothing to be like.
    other = [replace(one, group_id="h") for one in rollouts[1:]] + [rollouts[0]]
    assert values(other, "gtpo")["near"] == values(other, "gtpo")["far"]


def test_gtpo_takes_any_similarity() -> None:
    rollouts = [rollout("good", 1.0, *turns(None, codes=["x"])), rollout("bad", 0.0, *turns(None, codes=["y"]))]
    always = CreditOptions(alpha=1.0, similarity=lambda _left, _right: 1.0)
    assert values(rollouts, "gtpo", always) == {"good": [0.0], "bad": [0.0]}


def test_turn_level_grpo_by_hand() -> None:
    rollouts = [rollout("a", 1.0, *turns(None, None)), rollout("b", 0.0, *turns(None, None))]
    found = values(rollouts, "grpo_turns")
    np.testing.assert_allclose(found["a"], [1.0, 1.5], atol=1e-4)
    np.testing.assert_allclose(found["b"], [-1.0, -0.5], atol=1e-4)


SUBAGENTS = [
    rollout("a", 1.0, *turns(None), *turns(0.5, None, subagent=True, first=1)),
    rollout("b", 0.0, *turns(None), *turns(-0.5, subagent=True, first=1)),
    rollout("c", 0.5, *turns(None), *turns(None, subagent=True, first=1)),
]


def test_subagents_share() -> None:
    found, _ = assign(SUBAGENTS, "grpo", OPTIONS)
    (value,) = {found["a"].of((name, 0)) for name in ("c0", "c1", "c2")}
    assert value == pytest.approx(1.0, abs=1e-5)


def test_subagents_are_excluded() -> None:
    found, _ = assign(SUBAGENTS, "grpo", CreditOptions(subagents="exclude"))
    assert [found["a"].of((name, 0)) for name in ("c0", "c1", "c2")] == [pytest.approx(1.0, abs=1e-5), None, None]


def test_subagents_have_credit_of_their_own() -> None:
    """0.5 and -0.5 among the sub-agents; c's were never scored, so they are not trained and in no baseline."""
    found, _ = assign(SUBAGENTS, "dr_grpo", CreditOptions(subagents="own"))
    assert [found["a"].of((name, 0)) for name in ("c0", "c1", "c2")] == [0.5, 0.5, 0.5]
    assert [found["b"].of((name, 0)) for name in ("c0", "c1")] == [-0.5, -0.5]
    assert [found["c"].of((name, 0)) for name in ("c0", "c1")] == [0.0, None]


def test_turn_level_credit_of_subagents_counts_their_rewards_once() -> None:
    """Returns of a's sub-agent: 0.9·0.5, 0.5; of b's: -0.5. A session counts once: mean (0.475 - 0.5) / 2."""
    found, _ = assign(SUBAGENTS, "gtpo", CreditOptions(subagents="own", alpha=0.0))
    first, second = found["a"].of(("c1", 0)), found["a"].of(("c2", 0))
    other = found["b"].of(("c1", 0))
    assert first is not None
    assert second is not None
    assert other is not None
    assert (second - first) / (second - other) == pytest.approx(0.05 / 1.0)


@st.composite
def batches(draw: st.DrawFn) -> list[Rollout]:
    """Groups of sessions with turns, components and rewards, some without a reward."""
    made = []
    for place in range(draw(st.integers(0, 7))):
        reward = draw(st.none() | st.sampled_from([0.0, 1.0]) | st.floats(-5, 5))
        own = turns(*draw(st.lists(st.none() | st.floats(-1, 1), min_size=1, max_size=3)), codes=["a = 1"])
        parts = draw(st.dictionaries(st.sampled_from(["tests", "style"]), st.floats(-1, 1)))
        group_id, cut = draw(st.sampled_from("gh")), draw(st.booleans())
        made.append(rollout(f"s{place}", reward, *own, group_id=group_id, cut=cut, **parts))
    return made


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=40)
@given(batch=batches(), data=st.data())
def test_laws(name: str, batch: list[Rollout], data: st.DataObject) -> None:
    """Every scored session is credited or dropped for a reason, finitely; others are not there and move nothing."""
    found, dropped = assign(batch, name, OPTIONS)
    scored = {one.session_id for one in batch if one.reward is not None}
    assert set(found) | set(dropped) == scored
    assert not set(found) & set(dropped)
    credited = values(batch, name)
    assert all(math.isfinite(value) for own in credited.values() for value in own)
    without_null = [one for one in batch if one.reward is not None]
    assert values(without_null, name) == credited
    shuffled = data.draw(st.permutations(batch))
    assert values(shuffled, name) == credited


@pytest.mark.parametrize("name", ["grpo", "dr_grpo", "rloo", "reinforce++", "gspo", "gdpo", "gtpo"])
@settings(max_examples=40)
@given(batch=batches())
def test_credit_sums_to_nothing_with_each_session_once(name: str, batch: list[Rollout]) -> None:
    found = values(batch, name)
    assert abs(sum(float(np.mean(own)) for own in found.values())) < 1e-6


@pytest.mark.parametrize(
    "fields", [{"gamma": 1.1}, {"overlong_buffer": 0}, {"overlong": "penalty"}, {"failure": 1.0}], ids=str
)
def test_options_that_contradict_each_other_cannot_be_built(fields: dict[str, object]) -> None:
    with pytest.raises(InvalidValue):
        CreditOptions(**fields)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["grpo", "dr_grpo", "rloo", "reinforce++", "dapo"])
def test_an_advantage_is_a_finite_float32_or_is_refused(name: str) -> None:
    huge = [rollout("a", 1e308), rollout("b", -1e308), rollout("c", 1e308)]
    with pytest.raises(InvalidValue, match=f"session a has the reward 1e[+]308, .* for {re.escape(name)}"):
        assign(huge, name, CreditOptions())


def test_a_weight_may_be_too_large() -> None:
    pair = [rollout("a", 1.0, turns(0.0)[0]), rollout("b", 0.0, turns(0.0)[0])]
    with pytest.raises(InvalidValue, match=r"gtpo gives session a the advantage .* no finite float32"):
        assign(pair, "gtpo", CreditOptions(alpha=1e308, similarity=lambda _one, _other: 1e10))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_options_are_finite(value: float) -> None:
    for options in ({"alpha": value}, {"format_penalty": value}, {"component_weights": {"tests": value}}):
        with pytest.raises(InvalidValue, match="must be a finite number"):
            CreditOptions(**options)


def test_a_weight_is_for_a_component_that_there_is() -> None:
    with pytest.raises(InvalidValue, match=r"no session has a component 'typo'.*there are: tests"):
        assign([rollout("a", 1.0, tests=1.0)], "gdpo", CreditOptions(component_weights={"typo": 1.0}))
