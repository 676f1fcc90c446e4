"""The same batches as tensors."""

import numpy as np
import pytest

from polarproxy.batch.collate import pack, pad
from tests.batch.rows import row

torch = pytest.importorskip("torch", reason="needs torch: pip install 'polarproxy[torch]'")

NAMES = ["input_ids", "position_ids", "loss_mask", "rollout_logprobs", "loss_weight"]


def test_a_padded_batch() -> None:
    from polarproxy.batch.torch import to_tensors

    batch = pad([row([1, 2, 3]), row([4])], pad_token_id=9)
    tensors = to_tensors(batch)
    assert sorted(tensors) == sorted([*NAMES, "attention_mask", "advantages"])
    for name, tensor in tensors.items():
        np.testing.assert_array_equal(tensor.numpy(), getattr(batch, name))
    assert {tensors[name].dtype for name in ("input_ids", "attention_mask", "position_ids")} == {torch.int64}
    assert {tensors[name].dtype for name in ("rollout_logprobs", "advantages", "loss_weight")} == {torch.float32}
    assert tensors["loss_mask"].dtype is torch.uint8
    assert tensors["input_ids"].tolist() == [[1, 2, 3], [4, 9, 9]]


def test_a_packed_batch() -> None:
    from polarproxy.batch.torch import to_tensors

    tensors = to_tensors(pack([row([1, 2, 3]), row([4])]))
    assert sorted(tensors) == sorted([*NAMES, "cu_seqlens", "advantages"])
    assert tensors["cu_seqlens"].dtype is torch.int32
    assert tensors["cu_seqlens"].tolist() == [0, 3, 4]


def test_no_credit_is_no_tensor() -> None:
    from polarproxy.batch.torch import to_tensors

    assert "advantages" not in to_tensors(pad([row([1], credit=None)]))


def test_tensors_may_be_written_to() -> None:
    """A view of read-only memory would crash in the trainer's first operation in place."""
    from polarproxy.batch.torch import to_tensors

    for tensor in to_tensors(pack([row([1, 2])])).values():
        tensor += 1
