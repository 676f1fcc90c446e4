"""Rows that are cut keep their beginning and their credit; what is cut is counted."""

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from polarproxy.batch.cutting import cut
from polarproxy.batch.sample import Sample
from tests.batch.rows import row, rows

ARRAYS = ("token_ids", "loss_mask", "rollout_logprobs", "advantages", "policy_versions", "turn_index")


def test_a_row_that_is_short_enough_is_what_it_was() -> None:
    samples = [row([1, 2, 3], [0, 1, 1])]
    left = cut(samples, 3)
    assert left.samples[0] is samples[0]
    assert (left.rows, left.tokens, left.trained_tokens, left.untrained_rows) == (0, 0, 0, 0)


def test_a_long_row_keeps_its_beginning_and_its_credit() -> None:
    left = cut([row([1, 2, 3, 4], [0, 1, 0, 1], weight=0.5)], 3)
    (kept,) = left.samples
    assert kept.token_ids.tolist() == [1, 2, 3]
    assert kept.advantages is not None
    assert kept.advantages.tolist() == [0, 0.5, 0]
    assert (kept.loss_weight, kept.session_tokens, kept.session_logprob) == (0.5, 1, -0.5)
    assert (left.rows, left.tokens, left.trained_tokens) == (1, 1, 1)
    assert kept.call_ids == ("c0",)


def test_a_row_of_which_nothing_trained_is_left_is_gone_and_counted() -> None:
    left = cut([row([1, 2, 3], [0, 0, 1]), row([4, 5], [0, 1], branch=1)], 2)
    assert [sample.branch_index for sample in left.samples] == [1]
    assert (left.rows, left.tokens, left.trained_tokens, left.untrained_rows) == (1, 1, 1, 1)


@given(rows(), st.integers(1, 8))
def test_nothing_is_lost_uncounted(samples: list[Sample], size: int) -> None:
    samples = [sample for sample in samples if sample.trained_tokens]
    left = cut(samples, size)
    by_branch = {sample.branch_index: sample for sample in samples}
    assert sum(sample.trained_tokens for sample in left.samples) + left.trained_tokens == sum(
        sample.trained_tokens for sample in samples
    )
    assert len(left.samples) + left.untrained_rows == len(samples)
    assert left.tokens == sum(max(0, len(sample.token_ids) - size) for sample in samples)
    for kept in left.samples:
        whole = by_branch[kept.branch_index]
        assert 0 < len(kept.token_ids) == min(size, len(whole.token_ids))
        assert kept.loss_weight == whole.loss_weight
        for name in ARRAYS:
            ours, theirs = getattr(kept, name), getattr(whole, name)
            assert (ours is None) == (theirs is None)
            if ours is not None:
                np.testing.assert_array_equal(ours, theirs[:size])
    if left.rows:
        masked = [sample.rollout_logprobs[sample.loss_mask == 1] for sample in left.samples]
        sums = sum(map(len, masked)), float(sum(values.sum(dtype=np.float64) for values in masked))
        assert {(sample.session_tokens, sample.session_logprob) for sample in left.samples} <= {sums}


def test_no_row_shares_more_than_it_holds() -> None:
    first = row([1, 2, 3, 4, 5], [0, 1, 0, 1, 0])
    second = replace(row([1, 2, 3, 4, 6, 7], [0, 1, 0, 0, 0, 1], branch=1), parent_branch=0, shared_prefix=4)
    assert [one.shared_prefix for one in cut([first, second], 3).samples] == [0, 3]


def test_a_row_whose_parent_is_gone_is_a_child_of_the_next_one_above() -> None:
    """The second row shares two tokens with the first and trains nothing before the cut; the third is a child of it."""
    first = row([1, 2, 3], [0, 1, 0])
    second = replace(row([1, 2, 4, 5], [0, 0, 0, 1], branch=1), parent_branch=0, shared_prefix=2)
    third = replace(row([1, 2, 4, 6], [0, 0, 1, 0], branch=2), parent_branch=1, shared_prefix=3)
    kept = cut([first, second, third], 3).samples
    assert [(one.branch_index, one.parent_branch, one.shared_prefix) for one in kept] == [(0, None, 0), (2, 0, 2)]
    assert [(one.branch_index, one.parent_branch, one.shared_prefix) for one in cut([second, third], 3).samples] == [
        (2, None, 0)
    ]
