"""Branches, by example: the situations that others have met, and what becomes of them here."""

from collections.abc import Sequence

import pytest

from polarproxy.model import CallKind, CallStatus, CapturedCall, FinishReason
from polarproxy.trajectory.branches import Trajectory, build_trajectory
from polarproxy.trajectory.eligibility import Reason
from tests.trajectory.build import Said, turn


def shape(trajectory: Trajectory) -> list[tuple[list[int], list[tuple[str, bool]]]]:
    """Each branch: its tokens, and its calls with whether they are trained there."""
    return [
        (list(branch.token_ids), [(turn.node.captured.call.call_id, turn.trained) for turn in branch.turns])
        for branch in trajectory.branches
    ]


def rebuilt(*calls: CapturedCall) -> Trajectory:
    return build_trajectory("s", calls)


def test_no_calls_no_branches() -> None:
    trajectory = rebuilt()
    assert (trajectory.branches, trajectory.left_out, trajectory.coverage) == ((), (), None)


def test_a_conversation_is_one_branch() -> None:
    trajectory = rebuilt(turn(0, [1], Said([2])), turn(1, [1, 2, 3], Said([4])))
    assert shape(trajectory) == [([1, 2, 3, 4], [("s-c0", True), ("s-c1", True)])]
    assert trajectory.coverage == 1.0


def test_a_fork_shares_its_trunk_and_trains_it_once() -> None:
    trajectory = rebuilt(turn(0, [1], Said([2])), turn(1, [1, 2, 3], Said([4])), turn(2, [1, 2, 5], Said([6])))
    assert shape(trajectory) == [
        ([1, 2, 3, 4], [("s-c0", True), ("s-c1", True)]),
        ([1, 2, 5, 6], [("s-c0", False), ("s-c2", True)]),
    ]
    first, second = trajectory.branches
    assert (first.parent_branch, first.shared_prefix) == (None, 0)
    assert (second.parent_branch, second.shared_prefix) == (0, 2)


def test_a_fork_hangs_on_the_branch_with_the_longest_shared_beginning() -> None:
    trajectory = rebuilt(
        turn(0, [1], Said([2])),
        turn(1, [1, 2, 3], Said([4])),
        turn(2, [1, 2, 5], Said([6])),
        turn(3, [1, 2, 5, 6, 7], Said([8])),
        turn(4, [1, 2, 5, 6, 9], Said([9])),
    )
    assert [(branch.parent_branch, branch.shared_prefix) for branch in trajectory.branches] == [
        (None, 0),
        (0, 2),
        (1, 4),
    ]


def test_drift_forks_and_every_turn_keeps_its_own_context() -> None:
    """Reasoning 8 is stripped from the history: the second prompt is no continuation of what was sampled."""
    trajectory = rebuilt(turn(0, [1], Said([8, 2])), turn(1, [1, 2, 3], Said([4])))
    assert shape(trajectory) == [([1, 8, 2], [("s-c0", True)]), ([1, 2, 3, 4], [("s-c1", True)])]
    assert trajectory.left_out == ()


def test_two_id_sequences_of_one_text_are_not_the_same() -> None:
    """` Max` + `im` against ` Maxim`: compared by ids, so the second turn is a branch of its own."""
    assert len(rebuilt(turn(0, [1], Said([7625, 306])), turn(1, [1, 27927, 3], Said([4]))).branches) == 2


def test_a_retry_after_an_undelivered_reply_is_one_trained_turn() -> None:
    trajectory = rebuilt(
        turn(0, [1], Said([2]), delivered=False), turn(1, [1], Said([3])), turn(2, [1, 3, 4], Said([5]))
    )
    assert shape(trajectory) == [([1, 3, 4, 5], [("s-c1", True), ("s-c2", True)])]
    assert trajectory.left_out_by_reason() == {"superseded": 1}


def test_a_retry_that_samples_the_same_is_continued_where_it_was_delivered() -> None:
    trajectory = rebuilt(
        turn(0, [1], Said([2]), delivered=False), turn(1, [1], Said([2])), turn(2, [1, 2, 4], Said([5]))
    )
    assert shape(trajectory) == [([1, 2, 4, 5], [("s-c1", True), ("s-c2", True)])]
    assert trajectory.left_out_by_reason() == {"superseded": 1}


@pytest.mark.parametrize("cut", [[], [2], [2, 3]])
def test_an_aborted_stream_sent_again_unstreamed_is_one_trained_turn(cut: Sequence[int]) -> None:
    first = turn(0, [1], Said(cut, finish=None), status=CallStatus.ABORTED, delivered=False)
    trajectory = rebuilt(first, turn(1, [1], Said([2, 3, 4])), turn(2, [1, 2, 3, 4, 5], Said([6])))
    assert shape(trajectory) == [([1, 2, 3, 4, 5, 6], [("s-c1", True), ("s-c2", True)])]
    assert trajectory.left_out_by_reason() == {"superseded" if cut else "nothing_sampled": 1}


def test_an_interleaved_subagent_is_a_row_of_its_own() -> None:
    sub = CallKind.SUBAGENT
    trajectory = rebuilt(
        turn(0, [1], Said([2])),
        turn(1, [7], Said([8]), kind=sub),
        turn(2, [1, 2, 3], Said([4])),
        turn(3, [7, 8, 9], Said([10]), kind=sub),
        turn(4, [1, 2, 3, 4, 5], Said([6])),
    )
    assert shape(trajectory) == [
        ([1, 2, 3, 4, 5, 6], [("s-c0", True), ("s-c2", True), ("s-c4", True)]),
        ([7, 8, 9, 10], [("s-c1", True), ("s-c3", True)]),
    ]


def test_a_title_request_is_counted_and_not_trained() -> None:
    trajectory = rebuilt(turn(0, [7], Said([8]), kind=CallKind.TITLE), turn(1, [1], Said([2])))
    assert shape(trajectory) == [([1, 2], [("s-c1", True)])]
    assert trajectory.left_out_by_reason() == {"side_call": 1}
    assert trajectory.coverage == 0.5


def test_a_compaction_starts_a_new_branch() -> None:
    trajectory = rebuilt(turn(0, [1], Said([2])), turn(1, [9, 9], Said([4])))
    assert [branch.parent_branch for branch in trajectory.branches] == [None, None]


def test_siblings_both_stand_and_the_first_is_extended() -> None:
    trajectory = rebuilt(turn(0, [1], Said([2])), turn(1, [1], Said([2])), turn(2, [1, 2, 3], Said([4])))
    assert shape(trajectory) == [
        ([1, 2, 3, 4], [("s-c0", True), ("s-c2", True)]),
        ([1, 2], [("s-c1", True)]),
    ]


def test_a_call_without_ids_in_the_middle_leaves_no_gap() -> None:
    """What the engine said there stands in the next prompt all the same, as context."""
    trajectory = rebuilt(turn(0, [1], Said([2])), turn(1, None, Said([], None)), turn(2, [1, 2, 3, 4, 5], Said([6])))
    assert shape(trajectory) == [([1, 2, 3, 4, 5, 6], [("s-c0", True), ("s-c2", True)])]
    assert trajectory.left_out_by_reason() == {"no_token_ids": 1}


def test_an_overflow_is_no_empty_turn() -> None:
    trajectory = rebuilt(turn(0, [1], Said([2])), turn(1, None, status=CallStatus.REJECTED))
    assert len(trajectory.branches) == 1
    (entry,) = trajectory.left_out
    assert (entry.choice, entry.reason, entry.tokens) == (None, Reason.REJECTED, 0)


def test_an_untrained_turn_at_the_end_is_not_part_of_the_row() -> None:
    trajectory = rebuilt(turn(0, [1], Said([2])), turn(1, [1, 2, 3], Said([4], [-9999.0])))
    assert shape(trajectory) == [([1, 2], [("s-c0", True)])]


def test_coverage_counts_tokens_not_calls() -> None:
    trajectory = rebuilt(turn(0, [1], Said([2, 2, 2])), turn(1, [5], Said([2], None)))
    assert (trajectory.trained_tokens, trajectory.captured_tokens, trajectory.coverage) == (3, 4, 0.75)


def test_tokens_without_their_prompt_count_as_captured() -> None:
    trajectory = rebuilt(turn(0, None, Said([2, 3]), Said([4], index=1)))
    assert (trajectory.captured_tokens, trajectory.trained_tokens) == (3, 0)
    (entry,) = trajectory.left_out
    assert (entry.choice, entry.tokens) == (None, 3)


def test_the_stop_token_is_trained() -> None:
    """A model that never sees its end-of-turn token trained unlearns to stop."""
    (branch,) = rebuilt(turn(0, [1], Said([2, 99], finish=FinishReason.STOP))).branches
    assert list(branch.token_ids)[-1] == 99
    assert branch.turns[-1].node.stop == 3
