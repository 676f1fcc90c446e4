"""The same thing asked twice: what counts, what is left out, and on which evidence. A digest alone is never evidence."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given

from polarproxy.model import CallStatus, CapturedCall, FinishReason
from polarproxy.trajectory.branches import Trajectory, build_trajectory
from polarproxy.trajectory.eligibility import Reason
from polarproxy.trajectory.forest import build_forest
from polarproxy.trajectory.repeats import (
    RETRY_COUNT,
    Facts,
    RepeatKind,
    facts_of,
    find_repeats,
    retry_count,
    superseded,
)
from tests.trajectory.build import Said, call, turn
from tests.trajectory.sessions import sessions

CUT = [CallStatus.ABORTED, CallStatus.ENGINE_ERROR, CallStatus.TIMEOUT]


def fields(captured: CapturedCall, **changed: Any) -> CapturedCall:
    return replace(captured, call=replace(captured.call, **changed))


def tried(captured: CapturedCall, count: int) -> CapturedCall:
    return fields(captured, headers=((RETRY_COUNT, str(count)),))


def repeats(*calls: CapturedCall) -> list[tuple[RepeatKind, str, str]]:
    return [(found.kind, found.call_id, found.of) for found in find_repeats(build_forest(calls))]


def left_out(*calls: CapturedCall) -> dict[str, Reason]:
    return {entry.call_id: entry.reason for entry in build_trajectory("s", calls).left_out}


def rows(*calls: CapturedCall) -> list[list[str]]:
    """The trained calls of each row."""
    trajectory: Trajectory = build_trajectory("s", calls)
    return [[t.node.captured.call.call_id for t in branch.turns if t.trained] for branch in trajectory.branches]


FIRST, AGAIN, ON = turn(0, [1], Said([2, 3])), turn(1, [1], Said([2, 4])), turn(2, [1, 2, 4, 5], Said([6]))


def cut(status: CallStatus, said: Said | None = None) -> CapturedCall:
    return turn(0, [1], said or Said([2, 3], finish=None), status=status, delivered=False)


def test_two_delivered_answers_are_siblings_and_both_stand() -> None:
    assert repeats(FIRST, AGAIN, ON) == [(RepeatKind.SIBLING, "s-c1", "s-c0")]
    assert left_out(FIRST, AGAIN, ON) == {}
    assert rows(FIRST, AGAIN, ON) == [["s-c0"], ["s-c1", "s-c2"]]


def test_the_client_says_that_it_tries_again() -> None:
    """It gave up on a reply that the proxy had handed over whole."""
    calls = (tried(FIRST, 0), tried(AGAIN, 1), ON)
    assert repeats(*calls) == [(RepeatKind.RETRY, "s-c1", "s-c0")]
    assert left_out(*calls) == {"s-c0": Reason.SUPERSEDED}
    assert rows(*calls) == [["s-c1", "s-c2"]]


def test_a_count_that_does_not_rise_is_no_retry() -> None:
    """Claude Code always says 0; a client may begin again at 1."""
    for count in (0, 1):
        assert left_out(tried(FIRST, count), tried(AGAIN, count), ON) == {}


def test_a_retry_that_sampled_nothing_replaces_nothing() -> None:
    empty = turn(1, [1], Said([], None, finish=None), status=CallStatus.ABORTED, delivered=False)
    assert left_out(tried(FIRST, 0), tried(empty, 1)) == {"s-c1": Reason.NOTHING_SAMPLED}
    third = tried(turn(2, [1], Said([7])), 2)
    assert left_out(tried(FIRST, 0), tried(empty, 1), third) == {
        "s-c0": Reason.SUPERSEDED,
        "s-c1": Reason.NOTHING_SAMPLED,
    }


@pytest.mark.parametrize("prompt", [None, [1]])
def test_a_retry_of_a_call_that_failed_is_none_of_the_sibling_before_it(prompt: list[int] | None) -> None:
    failed = tried(turn(1, prompt, status=CallStatus.REJECTED), 0)
    again = tried(turn(2, [1], Said([2, 4])), 1)
    assert left_out(tried(FIRST, 0), failed, again) == {"s-c1": Reason.REJECTED}
    # One that is itself a later try belongs to the chain that the first began.
    assert left_out(tried(FIRST, 0), tried(failed, 1), tried(again, 2))["s-c0"] is Reason.SUPERSEDED
    # And what failed for another prompt is not what was tried again.
    other = tried(turn(1, [8], status=CallStatus.REJECTED), 0)
    assert left_out(tried(FIRST, 0), other, again)["s-c0"] is Reason.SUPERSEDED


@pytest.mark.parametrize(
    ("first", "reason"),
    [
        (cut(CallStatus.ABORTED), Reason.SUPERSEDED),
        (turn(0, [1], Said([2, 3], finish=FinishReason.LENGTH)), Reason.DISCARDED_AT_LENGTH),
    ],
)
def test_a_cut_try_is_not_used_where_the_whole_one_came_back_in_other_tokens(
    first: CapturedCall, reason: Reason
) -> None:
    again, on = turn(1, [1], Said([2, 3, 7, 9])), turn(2, [1, 2, 3, 77, 9, 5], Said([6]))
    assert left_out(first, again, on) == {"s-c0": reason}
    assert rows(first, again, on) == [["s-c2"], ["s-c1"]]
    assert RepeatKind.CONTINUED_AFTER_CUT not in {kind for kind, _, _ in repeats(first, again, on)}


def test_a_cut_try_that_was_gone_on_from_before_the_whole_one_came_is_used() -> None:
    on, again = turn(1, [1, 2, 3, 77], Said([6])), turn(2, [1], Said([2, 3, 7, 9]))
    assert left_out(cut(CallStatus.ABORTED), on, again) == {}


def test_a_length_cut_of_one_agent_is_not_discarded_by_another() -> None:
    def of(captured: CapturedCall, agent: str) -> CapturedCall:
        return fields(captured, headers=(("x-session-id", agent), ("x-parent-session-id", "m")))

    first = turn(0, [1], Said([2, 3], finish=FinishReason.LENGTH))
    assert left_out(of(first, "a"), of(AGAIN, "b"), of(ON, "b")) == {}
    assert left_out(of(first, "b"), of(AGAIN, "b"), of(ON, "b")) == {"s-c0": Reason.DISCARDED_AT_LENGTH}


def test_a_retry_of_another_agent_is_none() -> None:
    """Two sub-agents that were given one task send one prompt."""
    first, again = (
        fields(each, headers=((RETRY_COUNT, count), ("x-session-id", agent), ("x-parent-session-id", "p")))
        for each, count, agent in ((FIRST, "0", "a"), (AGAIN, "1", "b"))
    )
    assert repeats(first, again) == [(RepeatKind.SIBLING, "s-c1", "s-c0")]
    assert left_out(first, again) == {}


@pytest.mark.parametrize("status", CUT)
def test_a_reply_that_broke_off_is_superseded_by_the_next_try(status: CallStatus) -> None:
    assert repeats(cut(status), AGAIN, ON) == [(RepeatKind.RETRY, "s-c1", "s-c0")]
    assert left_out(cut(status), AGAIN, ON) == {"s-c0": Reason.SUPERSEDED}


def test_one_that_never_arrived_is_superseded() -> None:
    first = replace(FIRST, delivered=False)
    (found,) = find_repeats(build_forest([first, AGAIN]))
    assert (found.kind, found.evidence) == (RepeatKind.RETRY, "the first is not known to have arrived")
    assert left_out(first, AGAIN) == {"s-c0": Reason.SUPERSEDED}


def test_an_aborted_stream_that_comes_again_unstreamed_is_one_turn() -> None:
    again = fields(AGAIN, streamed=False)
    assert repeats(cut(CallStatus.ABORTED), again, ON) == [(RepeatKind.RESENT_UNSTREAMED, "s-c1", "s-c0")]
    assert left_out(cut(CallStatus.ABORTED), again, ON) == {"s-c0": Reason.SUPERSEDED}
    assert rows(cut(CallStatus.ABORTED), again, ON) == [["s-c1", "s-c2"]]


def test_what_a_later_prompt_contains_was_not_replaced() -> None:
    """The harness tried again, and went on from the first after all."""
    on = turn(2, [1, 2, 3, 5], Said([6]))
    first = cut(CallStatus.ABORTED)
    assert left_out(first, AGAIN, on) == {}
    assert rows(first, AGAIN, on) == [["s-c0", "s-c2"], ["s-c1"]]
    assert repeats(first, AGAIN, on)[0] == (RepeatKind.SIBLING, "s-c1", "s-c0")


def test_three_tries_are_one_turn() -> None:
    first, second = cut(CallStatus.ENGINE_ERROR), replace(AGAIN, delivered=False)
    third = turn(2, [1], Said([7]))
    assert left_out(first, second, third) == {"s-c0": Reason.SUPERSEDED, "s-c1": Reason.SUPERSEDED}
    assert repeats(first, second, third) == [
        (RepeatKind.RETRY, "s-c1", "s-c0"),
        (RepeatKind.RETRY, "s-c2", "s-c1"),
    ]


def test_a_turn_cut_at_its_limit_and_asked_again_was_rejected() -> None:
    first = turn(0, [1], Said([2, 3], finish=FinishReason.LENGTH))
    assert repeats(first, AGAIN, ON) == [(RepeatKind.REJECTED, "s-c1", "s-c0")]
    assert left_out(first, AGAIN, ON) == {"s-c0": Reason.DISCARDED_AT_LENGTH}


def test_a_compaction_loop_is_no_retry() -> None:
    """The same prompt over and over, each time answered: nothing replaces anything."""
    calls = [turn(place, [1], Said([2])) for place in range(4)]
    assert {kind for kind, _, _ in repeats(*calls)} == {RepeatKind.SIBLING}
    assert left_out(*calls) == {}


def test_a_cut_reply_that_stands_in_the_history_is_trained_and_gone_on_from() -> None:
    """The partial text came back token for token, and a new line of the user after it."""
    first, on = cut(CallStatus.ENGINE_ERROR), turn(1, [1, 2, 3, 9, 5], Said([6]))
    assert repeats(first, on) == [(RepeatKind.CONTINUED_AFTER_CUT, "s-c1", "s-c0")]
    assert left_out(first, on) == {}
    assert rows(first, on) == [["s-c0", "s-c1"]]


def test_a_cut_reply_of_which_a_part_came_back_is_left_out_and_gone_on_from() -> None:
    first, on = cut(CallStatus.ENGINE_ERROR, Said([2, 3, 4], finish=None)), turn(1, [1, 2, 3, 9, 5], Said([6]))
    (found,) = find_repeats(build_forest([first, on]))
    assert (found.kind, found.evidence) == (
        RepeatKind.CONTINUED_AFTER_CUT,
        "2 of its 3 sampled tokens stand in the prompt, and then something else",
    )
    assert left_out(first, on) == {"s-c0": Reason.FAILED}
    assert rows(first, on) == [["s-c1"]]


def test_a_cut_reply_of_which_a_part_is_to_be_gone_on_from_within_the_turn() -> None:
    """`continue_final_message`: the prompt ends with the part that the client kept."""
    first, on = cut(CallStatus.ABORTED, Said([2, 3, 4], finish=None)), turn(1, [1, 2, 3], Said([9]))
    (found,) = find_repeats(build_forest([first, on]))
    assert (found.kind, found.evidence) == (
        RepeatKind.CONTINUED_AFTER_CUT,
        "2 of its 3 sampled tokens stand in the prompt, at its end",
    )
    assert rows(first, on) == [["s-c1"]]


def test_a_longer_try_is_longer() -> None:
    """A retry that was cut at the same token tells nothing about which of them is gone on from: the first is."""
    first, again = (turn(ordinal, [1], Said([2, 3], finish=FinishReason.LENGTH)) for ordinal in (0, 1))
    on = turn(2, [1, 2, 3, 4], Said([6]))
    assert left_out(first, again, on) == {}
    assert rows(first, again, on) == [["s-c0", "s-c2"], ["s-c1"]]


def test_what_never_came_back_is_found_among_many_tries() -> None:
    """A thousand tries that were cut at their limit, and one that was gone on from: all before it were discarded."""
    tries = [turn(ordinal, [1], Said([2, ordinal], finish=FinishReason.LENGTH)) for ordinal in range(1000)]
    on = turn(1000, [1, 2, 998, 5], Said([6]))
    assert list(left_out(*tries, on)) == [f"s-c{ordinal}" for ordinal in range(998)]


def test_a_phantom_turn_in_the_history_is_context_and_never_trained() -> None:
    """After a cut OpenCode tells of a call with arguments `{}` (8) and a result `aborted` (9) that nobody sampled."""
    first, on = cut(CallStatus.ENGINE_ERROR), turn(1, [1, 8, 9], Said([6]))
    trajectory = build_trajectory("s", [first, on])
    assert left_out(first, on) == {"s-c0": Reason.FAILED}
    (branch,) = trajectory.branches
    assert (list(branch.token_ids), [turn.start for turn in branch.turns]) == ([1, 8, 9, 6], [3])
    assert repeats(first, on) == []


def test_an_orphan_result_in_the_history_is_context() -> None:
    """Gemini CLI ran a call before the cut: one call and two results (7, 8) stand in the next prompt."""
    first, again = cut(CallStatus.ENGINE_ERROR), turn(1, [1], Said([2, 3]))
    on = turn(2, [1, 2, 3, 7, 8], Said([6]))
    # The retry sampled the same, and was delivered: it is the one that goes on.
    assert rows(first, again, on) == [["s-c1", "s-c2"]]
    assert left_out(first, again, on) == {"s-c0": Reason.SUPERSEDED}


def test_generated_delivered_and_used_are_three_facts() -> None:
    nothing = turn(3, [8], Said([]), delivered=True)
    forest = build_forest([replace(FIRST, delivered=False), AGAIN, ON, nothing])
    assert [facts_of(forest, place) for place in range(4)] == [
        Facts(generated=True, delivered=False, used=False),
        Facts(generated=True, delivered=True, used=True),
        Facts(generated=True, delivered=True, used=False),
        Facts(generated=False, delivered=True, used=False),
    ]


@pytest.mark.parametrize(
    ("said", "count"), [("2", 2), ("", 0), ("-1", 0), ("two", 0), ("²", 0), ("9" * 9, 999_999_999), ("9" * 5000, 0)]
)
def test_what_is_no_number_is_no_count(said: str, count: int) -> None:
    assert retry_count(replace(call(0, [1]), headers=((RETRY_COUNT, said),))) == count


@given(sessions())
def test_nothing_that_is_used_or_the_last_of_its_prompt_is_superseded(calls: list[CapturedCall]) -> None:
    forest = build_forest(calls)
    for group in forest.same_prompt.values():
        last = max(forest.nodes[place].captured.call.ordinal for place in group)
        for place in group:
            if superseded(forest, place) is not None:
                begun = forest.nodes[place].completion.token_ids
                assert not forest.children[place] or any(
                    other > place and forest.nodes[other].completion.token_ids.startswith(begun) for other in group
                )
                assert forest.nodes[place].captured.call.ordinal < last


@given(sessions())
def test_a_repeat_comes_after_what_it_repeats(calls: list[CapturedCall]) -> None:
    order = {captured.call.call_id: captured.call.ordinal for captured in calls}
    found = find_repeats(build_forest(calls))
    assert all(order[each.of] < order[each.call_id] for each in found)
    asked = [each.call_id for each in found if each.kind is not RepeatKind.CONTINUED_AFTER_CUT]
    assert len(asked) == len(set(asked))
