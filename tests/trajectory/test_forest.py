"""Which call continues which: the parent is the longest earlier P ⊕ C that the prompt begins with."""

from dataclasses import replace

import pytest
from hypothesis import given, settings

from polarproxy.errors import InvalidValue
from polarproxy.model import CapturedCall
from polarproxy.trajectory.forest import Forest, Node, build_forest, in_order
from tests.trajectory.build import Said, call, turn
from tests.trajectory.sessions import AGENT, sessions


def parent_by_definition(nodes: tuple[Node, ...], place: int) -> int | None:
    """Tries everything: earlier calls that sampled something, the longest, then its own agent's, the delivered, the first."""
    node = nodes[place]
    candidates = [
        other
        for other in range(place)
        if nodes[other].captured.call.ordinal < node.captured.call.ordinal
        and len(nodes[other].completion.token_ids) > 0
        and list(node.prompt)[: nodes[other].stop] == list(nodes[other].context)
    ]
    agents = [dict(other.captured.call.headers).get(AGENT) for other in nodes]
    rank = {
        other: (
            -nodes[other].stop,
            agents[other] != agents[place],
            not nodes[other].captured.delivered,
            other,
        )
        for other in candidates
    }
    return min(candidates, key=lambda other: rank[other], default=None)


@given(sessions())
@settings(max_examples=300)
def test_parents_are_those_of_the_definition(calls: list[CapturedCall]) -> None:
    forest = build_forest(calls)
    for place, node in enumerate(forest.nodes):
        assert node.parent == parent_by_definition(forest.nodes, place)


@given(sessions())
def test_every_call_is_in_the_forest_or_beside_it(calls: list[CapturedCall]) -> None:
    forest = build_forest(calls)
    inside = {node.captured.call.call_id for node in forest.nodes}
    beside = [captured.call.call_id for captured in forest.without_prompt]
    assert inside.isdisjoint(beside)
    assert sorted([*inside, *beside]) == sorted(captured.call.call_id for captured in calls)
    assert len(forest.nodes) == sum(len(c.call.completions) for c in calls if c.call.call_id in inside)


@given(sessions())
def test_children_are_the_parents_turned_round(calls: list[CapturedCall]) -> None:
    forest = build_forest(calls)
    pairs = {(node.parent, place) for place, node in enumerate(forest.nodes) if node.parent is not None}
    assert pairs == {(parent, child) for parent, children in enumerate(forest.children) for child in children}
    assert all(list(children) == sorted(children) for children in forest.children)


def parents(forest: Forest) -> list[int | None]:
    return [node.parent for node in forest.nodes]


def test_a_conversation_is_a_chain() -> None:
    calls = [turn(0, [1], Said([2])), turn(1, [1, 2, 3], Said([4])), turn(2, [1, 2, 3, 4, 5], Said([6]))]
    assert parents(build_forest(calls)) == [None, 0, 1]


def test_a_prompt_that_differs_in_one_token_is_a_root_of_its_own() -> None:
    assert parents(build_forest([turn(0, [1], Said([2, 3])), turn(1, [1, 2, 9, 4], Said([5]))])) == [None, None]


def test_the_longest_wins_not_the_first_or_the_latest() -> None:
    calls = [turn(0, [1], Said([2])), turn(1, [1, 2, 3], Said([4])), turn(2, [1], Said([2, 3]))]
    assert parents(build_forest([*calls, turn(3, [1, 2, 3, 4, 5], Said([6]))])) == [None, 0, None, 1]


def test_of_equal_candidates_the_delivered_one_wins() -> None:
    calls = [turn(0, [1], Said([2]), delivered=False), turn(1, [1], Said([2])), turn(2, [1, 2, 3], Said([4]))]
    assert parents(build_forest(calls)) == [None, None, 1]


def test_of_equal_delivered_candidates_the_first_wins() -> None:
    calls = [turn(0, [1], Said([2])), turn(1, [1], Said([2])), turn(2, [1, 2, 3], Said([4]))]
    assert parents(build_forest(calls)) == [None, None, 0]


def by_agent(captured: CapturedCall, agent: str) -> CapturedCall:
    headers = (("x-claude-code-session-id", "m"), ("x-claude-code-agent-id", agent))
    return replace(captured, call=replace(captured.call, headers=headers))


def test_of_equal_candidates_the_agents_own_wins_even_undelivered() -> None:
    """Two agents said the same after the same; each goes on from its own, as the headers tell."""
    calls = [
        by_agent(turn(0, [1], Said([2])), "a"),
        by_agent(turn(1, [1], Said([2]), delivered=False), "b"),
        by_agent(turn(2, [1, 2, 3], Said([4])), "b"),
        by_agent(turn(3, [1, 2, 5], Said([6])), "a"),
        turn(4, [1, 2, 7], Said([8])),
    ]
    assert parents(build_forest(calls)) == [None, None, 1, 0, 0]


def test_the_choices_of_one_call_are_siblings() -> None:
    calls = [turn(0, [1], Said([2]), Said([2, 3], index=1)), turn(1, [1, 2, 3, 4], Said([5]))]
    assert parents(build_forest(calls)) == [None, None, 1]


def test_a_later_call_is_never_a_parent() -> None:
    assert parents(build_forest([turn(5, [1, 2, 3], Said([4])), turn(9, [1], Said([2]))])) == [None, None]


def test_a_completion_without_tokens_is_no_parent() -> None:
    """It would pass for the parent of every repeat of its prompt."""
    assert parents(build_forest([turn(0, [1], Said([])), turn(1, [1], Said([2]))])) == [None, None]


def test_spans() -> None:
    (node,) = build_forest([turn(0, [7, 8], Said([9]))]).nodes
    assert (node.start, node.stop, list(node.context)) == (2, 3, [7, 8, 9])


def test_two_calls_of_one_ordinal_are_refused() -> None:
    with pytest.raises(InvalidValue, match="calls s-c1 and s-c1 both have ordinal 1"):
        in_order([turn(1, [1], Said([2])), turn(1, [1], Said([2]))])


def test_calls_of_two_sessions_are_refused() -> None:
    with pytest.raises(InvalidValue, match="the calls of one session"):
        in_order([turn(0, [1]), CapturedCall(call(1, [1], session_id="other"))])
