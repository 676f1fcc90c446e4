"""The same batches as torch tensors (extra `torch`)."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

import numpy as np
import torch

if TYPE_CHECKING:
    from polarproxy.batch.collate import PackedBatch, PaddedBatch

_DTYPES = {"input_ids": torch.int64, "attention_mask": torch.int64, "position_ids": torch.int64}
"""What embedding layers and attention masks of the usual trainers take; the rest keeps its width."""


def to_tensors(batch: PaddedBatch | PackedBatch) -> dict[str, torch.Tensor]:
    """The arrays of a batch as tensors of the same shapes: ids, positions and attention int64, `cu_seqlens` int32,
    `loss_mask` uint8, the rest float32. `advantages` is missing when no credit was computed."""
    tensors = {}
    for field in fields(batch):
        array = getattr(batch, field.name)
        if array is not None:
            tensor = torch.from_numpy(np.ascontiguousarray(array))
            tensors[field.name] = tensor.to(_DTYPES.get(field.name, tensor.dtype))
    return tensors
