"""Specifications of rewards: read strictly, digested, composed by hand."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polarproxy.credit.spec import Judgement, compose, read_spec
from polarproxy.errors import BadReward
from polarproxy.model import ComponentKind, RewardComponent, TurnReward


def component(name: str = "a", **fields: Any) -> dict[str, Any]:
    return {"name": name, **fields}


def total(table: dict[str, Any], **values: float | None) -> float | None:
    reward = compose(read_spec(table), {name: Judgement(value) for name, value in values.items()})
    return None if reward is None else reward.value


WRONG: list[tuple[dict[str, Any], str]] = [
    ({}, "no components"),
    ({"component": []}, "no key 'component'; did you mean 'components'"),
    ({"components": [component(wieght=1)]}, r"components\[0\]: there is no key 'wieght'; did you mean 'weight'"),
    (
        {"components": [component(gate={"component": "a", "least": 1})]},
        "no key 'least'; did you mean 'at_least'",
    ),
    ({"components": [component(), component()]}, "two components have one name"),
    ({"components": [component(gate={"component": "b"})]}, "'b', which is no component; did you mean 'a'"),
    ({"components": [component()], "gates": [{"component": "x"}]}, "'x', which is no component"),
    ({"components": [component(range=[1, 0])]}, "from the smaller to the larger"),
    ({"components": [component()], "range": [1, 1]}, "from the smaller to the larger"),
    ({"components": [component(judge="regexp")]}, "no judge 'regexp'; did you mean 'regex'"),
    ({"components": [component(judge="regex", options={"patern": "a"})]}, "no key 'patern'; did you mean 'pattern'"),
    ({"components": [component(judge="regex", options={"pattern": "("})]}, "no regular expression"),
    ({"components": [component(judge="exact_match")]}, "give either expected or expected_from"),
    ({"components": [component(judge="length", options={"free": 9, "most": 9})]}, "must lie below"),
    ({"components": [component(judge="regex", python="a:b")]}, "one of judge, python and command"),
    ({"components": [component(python="a.b")]}, "module:function"),
    ({"components": [component(command=[])]}, "the command is empty"),
    ({"components": [component(weight=float("nan"))]}, "the weight is nan"),
    ({"components": [component(weight="1")]}, "Expected `float`"),
    ({"components": [component(timeout_s=0)]}, "greater than 0"),
    ({"components": [component(role="malus")]}, "Invalid enum value"),
]


@pytest.mark.parametrize(("table", "why"), WRONG, ids=[why for _, why in WRONG])
def test_what_makes_no_sense_is_refused_with_what_was_meant(table: dict[str, Any], why: str) -> None:
    with pytest.raises(BadReward, match=why):
        read_spec(table)


def test_weights_and_penalties() -> None:
    table = {
        "components": [component(weight=0.8), component("b", weight=0.5, role="penalty"), component("c", role="metric")]
    }
    assert total(table, a=1.0, b=0.5, c=9.0) == pytest.approx(0.8 - 0.25)
    assert read_spec(table).weights == {"a": 0.8, "b": -0.5}


def test_ranges_clip_values_and_the_total() -> None:
    table = {"components": [component(range=[0, 1], weight=3)], "range": [-1, 2]}
    assert [total(table, a=value) for value in (-5.0, 0.5, 5.0)] == [0.0, 1.5, 2.0]


def test_a_gate_of_a_component_makes_it_nothing() -> None:
    table = {"components": [component(gate={"component": "b", "at_least": 0.5}), component("b", weight=0.1)]}
    assert [total(table, a=1.0, b=value) for value in (0.4, 0.5)] == [pytest.approx(0.04), pytest.approx(1.05)]


def test_a_gate_of_the_whole_decides_the_total() -> None:
    gates = [{"component": "b", "otherwise": -1.0}, {"component": "c", "otherwise": -2.0}]
    table = {"components": [component(), component("b", role="metric"), component("c", role="metric")], "gates": gates}
    assert total(table, a=0.5, b=1.0, c=1.0) == 0.5
    assert total(table, a=0.5, b=0.0, c=1.0) == -1.0
    assert total(table, a=0.5, b=1.0, c=None) == -2.0
    # The first gate that is not passed decides.
    assert total(table, a=0.5, b=0.0, c=0.0) == -1.0


def test_nothing_to_judge_is_no_reward_unless_it_is_worth_something() -> None:
    assert total({"components": [component(), component("b")]}, a=1.0, b=None) is None
    assert total({"components": [component(), component("b", missing=-1.0)]}, a=1.0, b=None) == 0.0
    assert total({"components": [component(), component("b", role="metric")]}, a=1.0, b=None) == 1.0


def test_components_are_kept_as_they_were_judged() -> None:
    """Before range and gate, so that other weights can be tried on them."""
    table = {
        "components": [
            component(range=[0, 1], gate={"component": "b"}),
            component("b", role="penalty"),
            component("c", role="metric"),
        ]
    }
    spec = read_spec(table)
    judged = {"a": Judgement(7.0, {"x": 3.0}), "b": Judgement(0.5), "c": Judgement(2.0)}
    turns = (TurnReward(0.5, turn=0),)
    reward = compose(spec, judged, turns)
    assert reward is not None
    assert (reward.value, reward.turns, reward.spec) == (-0.5, turns, spec.digest)
    assert reward.components == (
        RewardComponent("a", 7.0),
        RewardComponent("a/x", 3.0, ComponentKind.METRIC),
        RewardComponent("b", 0.5, ComponentKind.PENALTY),
        RewardComponent("c", 2.0, ComponentKind.METRIC),
    )


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_judgement_that_is_no_number_is_refused(value: float) -> None:
    with pytest.raises(BadReward, match="a reward is a finite number"):
        compose(read_spec({"components": [component()]}), {"a": Judgement(value)})


@pytest.mark.parametrize("wanted", [{}, {"range": [0, 1]}], ids=str)
def test_a_judgement_that_no_trainer_can_hold_is_refused(wanted: dict[str, Any]) -> None:
    """Whatever the total comes to: other weights may be tried on the component later."""
    with pytest.raises(BadReward, match="too large"):
        compose(read_spec({"components": [component()]} | wanted), {"a": Judgement(1e39)})


def test_the_digest_is_that_of_what_is_meant() -> None:
    plain = read_spec({"components": [{"name": "a", "weight": 1.0}]})
    assert plain.digest == read_spec({"components": [{"weight": 1, "name": "a"}]}).digest
    assert len(plain.digest) == 32
    others = [component(weight=2), component(version="2"), component(role="metric"), component("b")]
    assert len({read_spec({"components": [one]}).digest for one in others} | {plain.digest}) == 5


@given(st.lists(st.tuples(st.floats(-5, 5), st.floats(-5, 5)), min_size=1, max_size=5), st.floats(0.1, 3))
def test_a_total_lies_in_its_range_and_grows_with_the_weights(parts: list[tuple[float, float]], scale: float) -> None:
    names = [f"c{place}" for place in range(len(parts))]
    table = {"components": [component(name, weight=weight) for name, (weight, _) in zip(names, parts, strict=True)]}
    values = {name: value for name, (_, value) in zip(names, parts, strict=True)}
    plain = total(table, **values)
    assert plain == pytest.approx(sum(weight * value for weight, value in parts))
    clipped = total({**table, "range": [-scale, scale]}, **values)
    assert clipped is not None
    assert -scale <= clipped <= scale
