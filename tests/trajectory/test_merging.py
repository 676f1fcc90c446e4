"""The rules other than the default: one row a call, and Polar's stitching, which is marked for what it does."""

import pytest

from polarproxy.batch.sample import build_samples
from polarproxy.model import CallKind, CapturedCall, FinishReason, Session
from polarproxy.trajectory.branches import Trajectory, build_trajectory, prefix_merging
from polarproxy.trajectory.merging import MERGES, per_request, stitch
from tests.trajectory.build import WHEN, Said, turn

END = 9
"""The end of a turn."""

KEPT = [turn(0, [1], Said([2, END])), turn(1, [1, 2, END, 3], Said([4, END]))]
DRIFTED = [turn(0, [1], Said([8, 2, END])), turn(1, [1, 2, END, 3], Said([4, END]))]
"""The reply came back without its first token."""


def tokens(trajectory: Trajectory) -> list[list[int]]:
    return [list(branch.token_ids) for branch in trajectory.branches]


def stitched(*calls: CapturedCall) -> Trajectory:
    return build_trajectory("s", calls, stitch)


def test_the_first_rule_is_the_default_and_each_has_a_name() -> None:
    assert [name for name, _ in MERGES] == ["prefix_merging", "per_request", "stitch"]
    assert MERGES[0][1] is prefix_merging


def test_one_row_a_call() -> None:
    trajectory = build_trajectory("s", KEPT, per_request)
    assert tokens(trajectory) == [[1, 2, END], [1, 2, END, 3, 4, END]]
    assert [[turn.node.captured.call.call_id for turn in branch.turns] for branch in trajectory.branches] == [
        ["s-c0"],
        ["s-c1"],
    ]
    assert [branch.trained_tokens for branch in trajectory.branches] == [2, 2]
    assert all(branch.faithful for branch in trajectory.branches)
    assert trajectory.coverage == 1.0


def test_one_row_a_call_trains_the_last_reply_of_each_row_only() -> None:
    rows = build_samples(build_trajectory("s", KEPT, per_request), Session("s", WHEN), None)
    assert [row.loss_mask.tolist() for row in rows] == [[0, 1, 1], [0, 0, 0, 0, 1, 1]]


def test_what_came_back_exactly_is_stitched_as_it_was() -> None:
    trajectory = stitched(*KEPT)
    assert tokens(trajectory) == [[1, 2, END, 3, 4, END]]
    (branch,) = trajectory.branches
    assert (branch.faithful, branch.off_context_tokens) == (True, 0)


def test_what_came_back_otherwise_is_stitched_and_said_to_be_off_its_context() -> None:
    trajectory = stitched(*DRIFTED)
    assert tokens(trajectory) == [[1, 8, 2, END, 3, 4, END]]
    (branch,) = trajectory.branches
    assert (branch.faithful, branch.off_context_tokens, branch.trained_tokens) == (False, 2, 5)
    (row,) = build_samples(trajectory, Session("s", WHEN), None)
    assert (row.faithful, row.loss_mask.tolist()) == (False, [0, 1, 1, 1, 0, 1, 1])


def test_the_default_forks_there_and_trains_the_same_tokens_each_in_its_context() -> None:
    trajectory = build_trajectory("s", DRIFTED)
    assert tokens(trajectory) == [[1, 8, 2, END], [1, 2, END, 3, 4, END]]
    assert trajectory.trained_tokens == stitched(*DRIFTED).trained_tokens
    assert all(branch.faithful for branch in trajectory.branches)


def test_a_reply_that_was_cut_gets_its_end_from_the_next_prompt() -> None:
    cut = turn(1, [1, 2, END, 3], Said([4], finish=FinishReason.LENGTH))
    last = turn(2, [1, 2, END, 3, 4, END, 5], Said([6, END]))
    assert tokens(stitched(KEPT[0], cut, last)) == [[1, 2, END, 3, 4, END, 5, 6, END]]


def test_a_reply_joins_no_row_of_another_conversation_however_long_that_is() -> None:
    calls = [
        turn(0, [1], Said([2, END])),
        turn(1, [5, 5, 5], Said([6, END])),
        turn(2, [1, 2, END, 3, 3, END], Said([4, END])),
    ]
    assert tokens(stitched(*calls)) == [[1, 2, END, 3, 3, END, 4, END], [5, 5, 5, 6, END]]


def test_where_no_end_of_turn_is_found_a_new_row_begins_and_nothing_is_lost() -> None:
    calls = [turn(0, [1], Said([2, END])), turn(1, [1, 7, 3], Said([4, END])), turn(2, [1, 7, 3, 4, END, 5], Said([6]))]
    trajectory = stitched(*calls)
    assert tokens(trajectory) == [[1, 2, END], [1, 7, 3, 4, END, 5, 6]]
    assert (trajectory.coverage, trajectory.left_out) == (1.0, ())


def test_a_row_ends_with_its_last_trained_turn() -> None:
    title = turn(2, [1, 2, END, 3, 4, END, 5], Said([6, END]), kind=CallKind.TITLE)
    assert tokens(stitched(*KEPT, title)) == [[1, 2, END, 3, 4, END]]


@pytest.mark.parametrize("name", dict(MERGES))
def test_nothing_at_all_makes_no_rows(name: str) -> None:
    assert build_trajectory("s", [turn(0, [1], Said([2]), kind=CallKind.TITLE)], dict(MERGES)[name]).branches == ()
