"""The forest of a session that still runs is that of all its calls, whatever order they became known in."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polarproxy.errors import InvalidValue
from polarproxy.model import CapturedCall
from polarproxy.trajectory.forest import Forest, GrowingForest, build_forest
from tests.trajectory.build import Said, call, turn
from tests.trajectory.sessions import sessions


def grown(calls: list[CapturedCall]) -> Forest:
    growing = GrowingForest()
    for captured in calls:
        growing.add(captured)
    return growing.forest()


@given(st.data())
def test_calls_may_become_known_in_any_order(data: st.DataObject) -> None:
    calls = data.draw(sessions())
    assert grown(data.draw(st.permutations(calls))) == build_forest(calls)


@given(sessions())
def test_after_each_call_it_is_the_forest_so_far(calls: list[CapturedCall]) -> None:
    growing = GrowingForest()
    for count, captured in enumerate(calls, 1):
        growing.add(captured)
        assert growing.forest() == build_forest(calls[:count])


def test_what_becomes_known_of_a_call_later_counts() -> None:
    """The second try turns out to be the one that reached the client."""
    first, second = turn(0, [1], Said([2]), delivered=False), turn(1, [1], Said([2]), delivered=False)
    growing = GrowingForest()
    for captured in (first, second, turn(2, [1, 2, 3], Said([4]))):
        growing.add(captured)
    assert [node.parent for node in growing.forest().nodes] == [None, None, 0]
    growing.add(replace(second, delivered=True))
    assert [node.parent for node in growing.forest().nodes] == [None, None, 1]


def test_a_forest_that_was_looked_at_does_not_grow() -> None:
    growing = GrowingForest()
    growing.add(turn(0, [1], Said([2])))
    before = growing.forest()
    growing.add(turn(1, [1, 2, 3], Said([4])))
    assert (len(before.nodes), before.children) == (1, ((),))


def test_a_call_of_another_session_is_refused() -> None:
    growing = GrowingForest()
    growing.add(turn(0, [1], Said([2])))
    growing.add(CapturedCall(call(1, [1], Said([2]), session_id="other")))
    with pytest.raises(InvalidValue, match="one session"):
        growing.forest()


def test_the_rule_for_ties_is_the_callers() -> None:
    """Two agents said the same after the same; each goes on from its own."""
    own = {"s-c0": "a", "s-c1": "b", "s-c2": "b", "s-c3": "a"}

    def by_agent(later: CapturedCall, earlier: CapturedCall) -> tuple[bool, ...]:
        return (own[later.call.call_id] != own[earlier.call.call_id],)

    calls = [turn(0, [1], Said([2])), turn(1, [1], Said([2])), turn(2, [1, 2, 3], Said([4]))]
    calls.append(turn(3, [1, 2, 5], Said([6])))
    assert [node.parent for node in build_forest(calls, by_agent).nodes] == [None, None, 1, 0]
    assert [node.parent for node in build_forest(calls).nodes] == [None, None, 0, 0]
