"""The same batches as tensors, and the rows out of them again."""

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given

from polarproxy.batch.collate import pad
from polarproxy.batch.sample import Sample
from polarproxy.errors import InvalidValue
from tests.batch.rows import row, rows

torch = pytest.importorskip("torch", reason="needs torch: pip install 'polarproxy[torch]'")

if TYPE_CHECKING:
    from polarproxy.batch.torch import GRPOBatch
else:
    GRPOBatch = pytest.importorskip("polarproxy.batch.torch").GRPOBatch

ARRAYS = ("token_ids", "loss_mask", "rollout_logprobs", "advantages", "policy_versions", "turn_index")


def test_a_padded_batch() -> None:
    samples = [row([1, 2, 3], session_id="a"), row([4], session_id="b")]
    batch, arrays = GRPOBatch.padded(samples, pad_token_id=9), pad(samples, pad_token_id=9)
    for name in ("input_ids", "attention_mask", "position_ids", "loss_mask", "rollout_logprobs", "advantages"):
        np.testing.assert_array_equal(getattr(batch, name).numpy(), getattr(arrays, name))
    assert {getattr(batch, name).dtype for name in ("input_ids", "attention_mask", "position_ids")} == {torch.int64}
    assert {getattr(batch, name).dtype for name in ("rollout_logprobs", "advantages", "loss_weight")} == {torch.float32}
    assert (batch.loss_mask.dtype, batch.turn_index.dtype) == (torch.uint8, torch.int32)
    assert batch.input_ids.tolist() == [[1, 2, 3], [4, 9, 9]]
    assert (batch.session_ids, batch.group_ids, batch.cu_seqlens, len(batch)) == (("a", "b"), ("g", "g"), None, 2)


def test_a_packed_batch() -> None:
    batch = GRPOBatch.packed([row([1, 2, 3]), row([4])])
    assert batch.cu_seqlens is not None
    assert batch.cu_seqlens.dtype is torch.int32
    assert batch.cu_seqlens.tolist() == [0, 3, 4]
    assert (batch.input_ids.tolist(), batch.attention_mask, len(batch)) == ([1, 2, 3, 4], None, 2)


@given(rows())
def test_rows_come_out_as_they_went_in(samples: list[Sample]) -> None:
    for batch in (GRPOBatch.padded(samples), GRPOBatch.packed(samples)):
        again = GRPOBatch.of_content(batch.content())
        for found, sample in zip(again.rows(), samples, strict=True):
            for name in ARRAYS:
                ours, theirs = getattr(found, name), getattr(sample, name)
                assert (ours is None) == (theirs is None)
                if theirs is not None:
                    np.testing.assert_array_equal(ours, theirs)
                    assert ours.dtype == theirs.dtype
            assert found.loss_weight == np.float32(sample.loss_weight)


def test_no_credit_is_no_tensor_and_some_credit_is_refused() -> None:
    assert "advantages" not in GRPOBatch.padded([row([1], credit=None)]).content()
    assert GRPOBatch.padded([row([1], credit=0.0)]).content()["advantages"].tolist() == [[0.0]]
    with pytest.raises(InvalidValue, match="1 of 2 rows have no advantages"):
        GRPOBatch.packed([row([1]), row([2], credit=None)])


def test_of_no_rows_is_a_batch_all_the_same() -> None:
    assert tuple(GRPOBatch.padded([]).input_ids.shape) == (0, 0)
    packed = GRPOBatch.packed([])
    assert (tuple(packed.input_ids.shape), packed.rows(), len(packed)) == ((0,), [], 0)


def test_tensors_may_be_written_to() -> None:
    """A view of read-only memory would crash in the trainer's first operation in place."""
    for tensor in GRPOBatch.packed([row([1, 2])]).content().values():
        if isinstance(tensor, torch.Tensor):
            tensor += 1


def test_a_batch_moves_as_a_whole() -> None:
    moved = GRPOBatch.padded([row([1, 2], session_id="a")]).to("meta")
    tensors: list[Any] = [value for value in moved.content().values() if isinstance(value, torch.Tensor)]
    assert {tensor.device.type for tensor in tensors} == {"meta"}
    assert len(tensors) == 9
    assert moved.session_ids == ("a",)
