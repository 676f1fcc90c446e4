"""Padding and packing lose nothing, add nothing, and let no NaN through."""

from collections.abc import Callable
from itertools import pairwise
from operator import itemgetter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from polarproxy.batch.collate import PackedBatch, PaddedBatch, bins, pack, pad
from polarproxy.batch.sample import Sample
from polarproxy.errors import InvalidValue
from tests.batch.rows import row, rows


def masked(sample: Sample) -> NDArray[np.float32]:
    return np.nan_to_num(sample.rollout_logprobs, nan=0.0)


def check(sample: Sample, batch: PaddedBatch | PackedBatch, part: Callable[[NDArray[Any]], NDArray[Any]]) -> None:
    """That a part of a batch is this row, in every array."""
    np.testing.assert_array_equal(part(batch.input_ids), sample.token_ids)
    np.testing.assert_array_equal(part(batch.position_ids), np.arange(len(sample.token_ids)))
    np.testing.assert_array_equal(part(batch.loss_mask), sample.loss_mask)
    np.testing.assert_array_equal(part(batch.rollout_logprobs), masked(sample))
    np.testing.assert_array_equal(part(batch.policy_versions), sample.policy_versions)
    np.testing.assert_array_equal(part(batch.turn_index), sample.turn_index)
    assert (batch.advantages is None) == (sample.advantages is None)
    if batch.advantages is not None and sample.advantages is not None:
        np.testing.assert_array_equal(part(batch.advantages), sample.advantages)


@given(rows(), st.integers(0, 9))
def test_unpadded_a_batch_is_its_rows(samples: list[Sample], pad_token_id: int) -> None:
    batch = pad(samples, pad_token_id)
    size = max(len(sample.token_ids) for sample in samples)
    assert batch.input_ids.shape == batch.attention_mask.shape == (len(samples), size)
    for place, sample in enumerate(samples):
        length = int(batch.attention_mask[place].sum())
        assert batch.attention_mask[place, :length].all()
        check(sample, batch, itemgetter((place, slice(length))))
        assert (batch.input_ids[place, length:] == pad_token_id).all()
        for array in (batch.loss_mask, batch.position_ids, batch.rollout_logprobs):
            assert not array[place, length:].any()
        for array in (batch.policy_versions, batch.turn_index):
            assert (array[place, length:] == -1).all()
        assert batch.advantages is None or not batch.advantages[place, length:].any()
    assert batch.loss_weight.tolist() == [sample.loss_weight for sample in samples]


@given(rows())
def test_cut_at_cu_seqlens_a_batch_is_its_rows(samples: list[Sample]) -> None:
    batch = pack(samples)
    assert batch.cu_seqlens[0] == 0
    assert batch.cu_seqlens[-1] == len(batch.input_ids)
    for sample, (start, stop) in zip(samples, pairwise(batch.cu_seqlens.tolist()), strict=True):
        check(sample, batch, itemgetter(slice(start, stop)))
    assert batch.loss_weight.tolist() == [sample.loss_weight for sample in samples]


@given(rows())
def test_types_and_no_nan(samples: list[Sample]) -> None:
    for batch in (pad(samples), pack(samples)):
        assert {array.dtype.name for array in (batch.input_ids, batch.position_ids)} == {"int32"}
        assert {array.dtype.name for array in (batch.rollout_logprobs, batch.loss_weight)} == {"float32"}
        assert batch.loss_mask.dtype == np.uint8
        assert np.isfinite(batch.rollout_logprobs).all()
    assert pack(samples).cu_seqlens.dtype == np.int32


def test_a_bad_logprob_of_an_untrained_token_does_not_spread() -> None:
    sample = row([1, 2], [0, 1])
    sample.rollout_logprobs[0] = -np.inf
    assert pad([sample]).rollout_logprobs.tolist() == [[0.0, -0.5]]


def test_no_rows_are_a_batch_all_the_same() -> None:
    padded, packed = pad([]), pack([])
    assert {array.shape for array in (padded.input_ids, padded.loss_mask, padded.turn_index)} == {(0, 0)}
    assert (packed.input_ids.shape, packed.cu_seqlens.tolist()) == ((0,), [0])
    assert padded.advantages is None
    assert (padded.input_ids.dtype.name, packed.rollout_logprobs.dtype.name) == ("int32", "float32")


def test_credit_is_for_all_rows_or_for_none() -> None:
    for make in (pad, pack):
        with pytest.raises(InvalidValue, match="1 of 3 rows have no advantages"):
            make([row([1]), row([2], credit=None), row([3])])


@given(rows(least=0, most=9), st.integers(7, 12))
def test_bins_hold_every_row_once_and_never_too_much(samples: list[Sample], most: int) -> None:
    packed = bins(samples, most)
    assert all(0 < sum(len(sample.token_ids) for sample in one) <= most for one in packed)
    assert sorted(sample.branch_index for one in packed for sample in one) == [s.branch_index for s in samples]


@given(rows(most=9), st.data())
def test_bins_do_not_depend_on_the_order_of_rows(samples: list[Sample], data: st.DataObject) -> None:
    shuffled = data.draw(st.permutations(samples))
    assert [[s.branch_index for s in one] for one in bins(shuffled, 7)] == [
        [s.branch_index for s in one] for one in bins(samples, 7)
    ]


def test_a_row_goes_where_it_fits_best() -> None:
    samples = [row([0] * size, branch=size) for size in (6, 5, 4, 3, 2)]
    assert [[len(s.token_ids) for s in one] for one in bins(samples, 10)] == [[6, 4], [5, 3, 2]]


def test_a_row_that_is_too_long_is_refused_and_not_cut() -> None:
    with pytest.raises(InvalidValue, match="branch 1 of session long has 4 tokens, a sequence holds 3"):
        bins([row([1, 2, 3, 4], session_id="long", branch=1)], 3)
