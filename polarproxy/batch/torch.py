"""Batches as torch tensors (extra `torch`)."""

from __future__ import annotations

from dataclasses import dataclass, fields
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from polarproxy.batch.collate import pack, pad

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from polarproxy.batch.collate import PackedBatch, PaddedBatch
    from polarproxy.batch.sample import Sample

_DTYPES = {"input_ids": torch.int64, "attention_mask": torch.int64, "position_ids": torch.int64}
"""What embedding layers and attention masks of the usual trainers take; the rest keeps its width."""


@dataclass(frozen=True, slots=True, eq=False)
class Row:
    """One row of a batch, taken out of it again; arrays of its own length L."""

    token_ids: NDArray[np.int32]
    loss_mask: NDArray[np.uint8]
    rollout_logprobs: NDArray[np.float32]
    """NaN where not sampled. What was sampled and is not finite in the row is 0 here."""
    advantages: NDArray[np.float32] | None
    """None: no credit was computed."""
    policy_versions: NDArray[np.int32]
    turn_index: NDArray[np.int32]
    loss_weight: float
    """As float32 has it."""


@dataclass(frozen=True, slots=True, eq=False)
class GRPOBatch:
    """B rows for one step: right-padded, `[B, T]`, or packed end to end, `[T]`.

    For a `DataLoader`: `collate_fn=GRPOBatch.padded` or `GRPOBatch.packed`. `loss_mask` is 1 where a token is trained; the loss
    of token t belongs to the logits of t − 1.
    """

    input_ids: torch.Tensor
    """int64 `[B, T]` or `[T]`."""
    position_ids: torch.Tensor
    """int64, of the same shape; counts from 0 in each row."""
    loss_mask: torch.Tensor
    """uint8, of the same shape; 0 on padding."""
    rollout_logprobs: torch.Tensor
    """float32, of the same shape; under the policy that sampled; 0 where not sampled, so that no NaN spreads."""
    policy_versions: torch.Tensor
    """int32, of the same shape; −1 where not sampled."""
    turn_index: torch.Tensor
    """int32, of the same shape; −1 where not sampled."""
    loss_weight: torch.Tensor
    """float32 `[B]`."""
    advantages: torch.Tensor | None = None
    """float32, of the shape of `input_ids`. None: no credit was computed, which is not 0."""
    attention_mask: torch.Tensor | None = None
    """int64 `[B, T]`. None: the batch is packed."""
    cu_seqlens: torch.Tensor | None = None
    """int32 `[B + 1]`: where each row begins, and the end, as flash attention takes it. None: the batch is padded."""
    session_ids: tuple[str, ...] = ()
    group_ids: tuple[str | None, ...] = ()
    """None: the session stands alone."""

    @classmethod
    def padded(cls, samples: Sequence[Sample], pad_token_id: int = 0) -> GRPOBatch:
        """Rows padded on the right; raises `InvalidValue` when only some have advantages."""
        return cls._of(pad(samples, pad_token_id), samples)

    @classmethod
    def packed(cls, samples: Sequence[Sample]) -> GRPOBatch:
        """Rows end to end; raises `InvalidValue` when only some have advantages."""
        return cls._of(pack(samples), samples)

    @classmethod
    def _of(cls, batch: PaddedBatch | PackedBatch, samples: Sequence[Sample]) -> GRPOBatch:
        tensors: dict[str, Any] = {one.name: _tensor(one.name, getattr(batch, one.name)) for one in fields(batch)}
        return cls(
            **tensors,
            session_ids=tuple(sample.session_id for sample in samples),
            group_ids=tuple(sample.group_id for sample in samples),
        )

    @classmethod
    def of_content(cls, content: Mapping[str, Any]) -> GRPOBatch:
        """The batch in a file of `export --format torch`, as `torch.load(path, weights_only=True)` reads it."""
        own = {one.name: content.get(one.name) for one in fields(cls)}
        return cls(**own | {name: tuple(content[name]) for name in ("session_ids", "group_ids")})

    def content(self) -> dict[str, Any]:
        """The tensors by name, without those that are None, and the names of sessions and groups as lists."""
        found = {one.name: getattr(self, one.name) for one in fields(self)}
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in found.items()
            if value is not None
        }

    def __len__(self) -> int:
        """How many rows."""
        return len(self.loss_weight)

    def to(self, *arguments: Any, **named: Any) -> GRPOBatch:
        """The batch on another device: `Tensor.to` of every tensor."""
        return self._each(lambda tensor: tensor.to(*arguments, **named))

    def pin_memory(self) -> GRPOBatch:
        """In pinned memory; a `DataLoader` with `pin_memory=True` asks for it."""
        return self._each(lambda tensor: tensor.pin_memory())

    def rows(self) -> list[Row]:
        """The rows again."""
        if self.attention_mask is not None:
            sizes = self.attention_mask.sum(dim=1).tolist()
            parts: list[Any] = [(place, slice(size)) for place, size in enumerate(sizes)]
        else:
            starts = [] if self.cu_seqlens is None else self.cu_seqlens.tolist()
            parts = [slice(start, stop) for start, stop in pairwise(starts)]
        return [self._row(part, weight) for part, weight in zip(parts, self.loss_weight.tolist(), strict=True)]

    def _row(self, part: Any, weight: float) -> Row:
        turns, logprobs = self.turn_index[part].numpy(), self.rollout_logprobs[part].numpy()
        return Row(
            token_ids=self.input_ids[part].numpy().astype(np.int32),
            loss_mask=self.loss_mask[part].numpy(),
            rollout_logprobs=np.where(turns < 0, np.float32("nan"), logprobs),
            advantages=None if self.advantages is None else self.advantages[part].numpy(),
            policy_versions=self.policy_versions[part].numpy(),
            turn_index=turns,
            loss_weight=weight,
        )

    def _each(self, change: Callable[[torch.Tensor], torch.Tensor]) -> GRPOBatch:
        values = {one.name: getattr(self, one.name) for one in fields(self)}
        return GRPOBatch(
            **{name: change(value) if isinstance(value, torch.Tensor) else value for name, value in values.items()}
        )


def _tensor(name: str, array: NDArray[Any] | None) -> torch.Tensor | None:
    if array is None:
        return None
    tensor = torch.from_numpy(np.ascontiguousarray(array))
    return tensor.to(_DTYPES.get(name, tensor.dtype))
