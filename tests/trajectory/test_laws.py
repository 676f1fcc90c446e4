"""The laws of the architecture, over sessions at random and over what harnesses do; and a merger that breaks each is caught."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from polarproxy.model import TokenIds
from polarproxy.trajectory.branches import Branch, Trajectory, build_trajectory, prefix_merging, trajectory_of
from polarproxy.trajectory.drift import find_drifts
from polarproxy.trajectory.eligibility import Reason
from polarproxy.trajectory.forest import Forest, build_forest
from polarproxy.trajectory.merging import MERGES, per_request, stitch
from tests.fakes import toy_tokenizer
from tests.trajectory.behaviours import SOME_CLASS, Played, behaviours
from tests.trajectory.laws import (
    LAWS,
    Calls,
    Merger,
    complete,
    faithful,
    marked,
    nothing_broken,
    once,
    order_free,
)
from tests.trajectory.reasons import nothing_withheld
from tests.trajectory.sessions import sessions
from tests.trajectory.tongues import MARKS, TOY, real

MANY = settings(max_examples=150)
SOME = settings(max_examples=50, suppress_health_check=[HealthCheck.too_slow])
FEW = settings(max_examples=15, suppress_health_check=[HealthCheck.too_slow], deadline=None, phases=[Phase.generate])

Law = Callable[[Calls, Merger], None]


def rule(name: str) -> Merger:
    return partial(build_trajectory, "s", merge=dict(MERGES)[name])


def laws_of(name: str) -> Sequence[Law]:
    """`stitch` keeps all laws but the first, of which it keeps as much as it says."""
    return LAWS if name != "stitch" else (marked, *(law for law in LAWS if law is not faithful))


@pytest.mark.parametrize("name", dict(MERGES))
def test_any_calls(name: str) -> None:
    @given(sessions())
    @MANY
    def check(calls: Calls) -> None:
        for law in laws_of(name):
            law(calls, rule(name))

    check()


def trained_turns(trajectory: Trajectory) -> set[tuple[str, int]]:
    turns = (turn for branch in trajectory.branches for turn in branch.turns if turn.trained)
    return {(turn.node.captured.call.call_id, turn.node.completion.index) for turn in turns}


@pytest.mark.parametrize("name", dict(MERGES))
def test_what_is_refused_is_counted_and_takes_nothing_along(name: str) -> None:
    @given(sessions())
    @SOME
    def check(calls: Calls) -> None:
        refused = frozenset({(captured.call.call_id, None) for captured in calls if captured.call.ordinal % 2})

        def merge(given: Calls) -> Trajectory:
            return trajectory_of("s", build_forest(given), dict(MERGES)[name], refused)

        for law in laws_of(name):
            if law is not nothing_withheld:
                law(calls, merge)
        expected = {turn for turn in trained_turns(rule(name)(calls)) if (turn[0], None) not in refused}
        assert trained_turns(merge(calls)) == expected

    check()


@pytest.mark.parametrize("name", dict(MERGES))
def test_what_harnesses_do(name: str) -> None:
    @given(behaviours(TOY))
    @SOME
    def check(played: Played) -> None:
        for law in laws_of(name):
            law(played.calls, rule(name))

    check()


@given(st.data())
@MANY
def test_any_order_at_all(data: st.DataObject) -> None:
    calls = data.draw(sessions())
    assert build_trajectory("s", data.draw(st.permutations(calls))) == build_trajectory("s", calls)


def drifts_are_what_was_done(played: Played) -> None:
    """Each call drifts in the way in which its history was changed, and no other call does."""
    found = {drift.call_id: drift.drift_class for drift in find_drifts(build_forest(played.calls), played.texts)}
    for call_id, expected in played.expected.items():
        if expected is SOME_CLASS:
            assert call_id in found
        else:
            assert found.get(call_id) is expected, call_id


@given(behaviours(TOY))
@SOME
def test_drifts_are_what_was_done(played: Played) -> None:
    drifts_are_what_was_done(played)


@pytest.mark.parametrize("tokenizer", MARKS)
def test_on_a_real_tokenizer(tokenizer: str) -> None:
    speak = real(tokenizer)

    @given(behaviours(speak))
    @FEW
    def check(played: Played) -> None:
        for law in LAWS:
            law(played.calls, rule("prefix_merging"))
        drifts_are_what_was_done(played)

    check()


Reasons = Sequence[Reason | None]


def trains_in_every_branch(forest: Forest, reasons: Reasons) -> Iterator[Branch]:
    fine = {id(node) for node, reason in zip(forest.nodes, reasons, strict=True) if reason is None}
    for branch in prefix_merging(forest, reasons):
        yield replace(branch, turns=tuple(replace(turn, trained=id(turn.node) in fine) for turn in branch.turns))


def trains_what_was_broken_off(forest: Forest, reasons: Reasons) -> Iterator[Branch]:
    return prefix_merging(forest, [None if reason is Reason.ABORTED else reason for reason in reasons])


def trains_titles(forest: Forest, reasons: Reasons) -> Iterator[Branch]:
    return prefix_merging(forest, [None if reason is Reason.SIDE_CALL else reason for reason in reasons])


def spells_and_tokenizes_again(forest: Forest, reasons: Reasons) -> Iterator[Branch]:
    for branch in prefix_merging(forest, reasons):
        ids = [*TOY.encode(toy_tokenizer.decode(branch.token_ids)), *branch.token_ids]
        yield replace(branch, token_ids=TokenIds.of(ids[: len(branch.token_ids)]))


def cuts_at_the_first_drift(calls: Calls) -> Trajectory:
    whole = build_trajectory("s", calls)
    return replace(whole, branches=whole.branches[:1])


def forgets_what_it_leaves_out(calls: Calls) -> Trajectory:
    whole = build_trajectory("s", calls)
    return replace(whole, left_out=whole.left_out[1:])


def goes_by_the_clock(calls: Calls) -> Trajectory:
    ordered = sorted(calls, key=lambda captured: captured.call.arrived_at)
    return build_trajectory(
        "s", [replace(one, call=replace(one.call, ordinal=place)) for place, one in enumerate(ordered)]
    )


def keeps_what_comes_first(calls: Calls) -> Trajectory:
    """Of two calls with one prompt, the one that is handed in first."""
    kept = {captured.call.prompt_token_ids: captured for captured in reversed(calls)}
    return build_trajectory("s", list(kept.values()))


def takes_a_repeat_for_a_retry(calls: Calls) -> Trajectory:
    """Of two calls with one prompt only the later one counts, without evidence that it was tried again."""
    later = {captured.call.prompt_token_ids: captured.call.call_id for captured in calls}
    earlier = {(c.call.call_id, None) for c in calls if later[c.call.prompt_token_ids] != c.call.call_id}
    made = trajectory_of("s", build_forest(calls), refused=earlier)
    told = (replace(one, reason=Reason.SUPERSEDED) if one.reason is Reason.REFUSED else one for one in made.left_out)
    return replace(made, left_out=tuple(told))


def doubts_every_later_turn(calls: Calls) -> Trajectory:
    later = {(captured.call.call_id, None) for captured in calls[1:]}
    made = trajectory_of("s", build_forest(calls), refused=later)
    told = (replace(one, reason=Reason.UNDELIVERED) if one.reason is Reason.REFUSED else one for one in made.left_out)
    return replace(made, left_out=tuple(told))


def merging(merge: Callable[[Forest, Reasons], Iterator[Branch]]) -> Merger:
    return partial(build_trajectory, "s", merge=merge)


VIOLATIONS: tuple[tuple[Law, str, Merger], ...] = (
    (faithful, "stitches", merging(stitch)),
    (faithful, "tokens pass through text", merging(spells_and_tokenizes_again)),
    (once, "trains shared turns in every branch", merging(trains_in_every_branch)),
    (complete, "cuts at the first drift", cuts_at_the_first_drift),
    (complete, "forgets what it leaves out", forgets_what_it_leaves_out),
    (complete, "drops repeats", keeps_what_comes_first),
    (order_free, "goes by the clock", goes_by_the_clock),
    (order_free, "keeps what comes first", keeps_what_comes_first),
    (nothing_broken, "trains what was broken off", merging(trains_what_was_broken_off)),
    (nothing_broken, "trains titles", merging(trains_titles)),
    (nothing_withheld, "takes a repeat for a retry", takes_a_repeat_for_a_retry),
    (nothing_withheld, "doubts every later turn", doubts_every_later_turn),
)


@pytest.mark.parametrize(
    ("law", "merge"), [(law, merge) for law, _, merge in VIOLATIONS], ids=[v[1] for v in VIOLATIONS]
)
def test_a_violation_is_caught(law: Law, merge: Merger) -> None:
    @given(behaviours(TOY))
    @settings(SOME, phases=[Phase.generate], database=None, derandomize=True, max_examples=200, deadline=None)
    def check(played: Played) -> None:
        law(played.calls, merge)

    with pytest.raises(AssertionError):
        check()


def test_every_law_has_a_violation() -> None:
    assert {law for law, _, _ in VIOLATIONS} == set(LAWS)


def test_one_row_a_call_is_no_violation() -> None:
    """The checks do not ask for the default rule, only for the laws."""
    assert merging(per_request)([]).branches == ()
