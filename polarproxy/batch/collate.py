"""Rows of one optimiser step as arrays: padded to one length, or packed end to end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from polarproxy.errors import InvalidValue
from polarproxy.model.plurals import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from polarproxy.batch.sample import Sample


S = TypeVar("S", bound=np.generic)


@dataclass(frozen=True, slots=True, eq=False)
class PaddedBatch:
    """B rows, right-padded to the longest, T."""

    input_ids: NDArray[np.int32]
    """`[B, T]`"""
    attention_mask: NDArray[np.uint8]
    """`[B, T]`; 1 where there is a token."""
    position_ids: NDArray[np.int32]
    """`[B, T]`; counts from 0 in each row, 0 on padding."""
    loss_mask: NDArray[np.uint8]
    """`[B, T]`; 0 on padding."""
    rollout_logprobs: NDArray[np.float32]
    """`[B, T]`; 0 where not sampled, not known or not finite, since a NaN would spread through a masked sum."""
    advantages: NDArray[np.float32] | None
    """`[B, T]`. None: no credit was computed."""
    policy_versions: NDArray[np.int32]
    """`[B, T]`; −1 where not sampled."""
    turn_index: NDArray[np.int32]
    """`[B, T]`; −1 where not sampled."""
    loss_weight: NDArray[np.float32]
    """`[B]`"""


@dataclass(frozen=True, slots=True, eq=False)
class PackedBatch:
    """N rows end to end in one sequence of T tokens, with `cu_seqlens` as flash attention takes it."""

    input_ids: NDArray[np.int32]
    """`[T]`"""
    position_ids: NDArray[np.int32]
    """`[T]`; counts from 0 in each row."""
    cu_seqlens: NDArray[np.int32]
    """`[N + 1]`; where each row begins, and the end."""
    loss_mask: NDArray[np.uint8]
    """`[T]`"""
    rollout_logprobs: NDArray[np.float32]
    """`[T]`; 0 where not sampled, not known or not finite."""
    advantages: NDArray[np.float32] | None
    """`[T]`. None: no credit was computed."""
    policy_versions: NDArray[np.int32]
    """`[T]`; −1 where not sampled."""
    turn_index: NDArray[np.int32]
    """`[T]`; −1 where not sampled."""
    loss_weight: NDArray[np.float32]
    """`[N]`"""


def _credits(samples: Sequence[Sample]) -> list[NDArray[np.float32]] | None:
    """The rows' advantages; raises `InvalidValue` when only some have them."""
    given = [sample.advantages for sample in samples if sample.advantages is not None]
    if given and len(given) != len(samples):
        raise InvalidValue(f"{len(samples) - len(given)} of {len(samples)} rows have no advantages; use all or none")
    return given or None


def _finite_logprobs(sample: Sample) -> NDArray[np.float32]:
    return np.where(np.isfinite(sample.rollout_logprobs), sample.rollout_logprobs, np.float32(0))


def _fill(rows: Sequence[NDArray[S]], size: int, kind: type[S], value: float = 0) -> NDArray[S]:
    array = np.full((len(rows), size), value, kind)
    for place, row in enumerate(rows):
        array[place, : len(row)] = row
    return array


def _join(rows: Sequence[NDArray[S]], kind: type[S]) -> NDArray[S]:
    return np.concatenate([np.zeros(0, kind), *rows])


def pad(samples: Sequence[Sample], pad_token_id: int = 0) -> PaddedBatch:
    """A padded batch; of no rows it is `[0, 0]`. Raises `InvalidValue` when only some rows have advantages."""
    lengths = [len(sample.token_ids) for sample in samples]
    size, credit = max(lengths, default=0), _credits(samples)
    return PaddedBatch(
        input_ids=_fill([sample.token_ids for sample in samples], size, np.int32, pad_token_id),
        attention_mask=_fill([np.ones(length, np.uint8) for length in lengths], size, np.uint8),
        position_ids=_fill([np.arange(length, dtype=np.int32) for length in lengths], size, np.int32),
        loss_mask=_fill([sample.loss_mask for sample in samples], size, np.uint8),
        rollout_logprobs=_fill([_finite_logprobs(sample) for sample in samples], size, np.float32),
        advantages=None if credit is None else _fill(credit, size, np.float32),
        policy_versions=_fill([sample.policy_versions for sample in samples], size, np.int32, -1),
        turn_index=_fill([sample.turn_index for sample in samples], size, np.int32, -1),
        loss_weight=np.asarray([sample.loss_weight for sample in samples], np.float32),
    )


def pack(samples: Sequence[Sample]) -> PackedBatch:
    """All rows in one sequence, in order; of no rows it is `[0]`. Raises `InvalidValue` when only some have advantages."""
    lengths = np.asarray([len(sample.token_ids) for sample in samples], np.int32)
    credit = _credits(samples)
    return PackedBatch(
        input_ids=_join([sample.token_ids for sample in samples], np.int32),
        position_ids=_join([np.arange(length, dtype=np.int32) for length in lengths], np.int32),
        cu_seqlens=np.concatenate([np.zeros(1, np.int32), np.cumsum(lengths, dtype=np.int32)]),
        loss_mask=_join([sample.loss_mask for sample in samples], np.uint8),
        rollout_logprobs=_join([_finite_logprobs(sample) for sample in samples], np.float32),
        advantages=None if credit is None else _join(credit, np.float32),
        policy_versions=_join([sample.policy_versions for sample in samples], np.int32),
        turn_index=_join([sample.turn_index for sample in samples], np.int32),
        loss_weight=np.asarray([sample.loss_weight for sample in samples], np.float32),
    )


def bins(samples: Sequence[Sample], max_tokens: int) -> list[list[Sample]]:
    """Rows put together into sequences of at most `max_tokens` (best fit, longest first).

    A row that is longer by itself is `InvalidValue`: cutting it would train on less than was promised.
    """
    order = sorted(samples, key=lambda sample: (-len(sample.token_ids), sample.session_id, sample.branch_index))
    packed: list[list[Sample]] = []
    room: list[int] = []
    for sample in order:
        length = len(sample.token_ids)
        if length > max_tokens:
            raise InvalidValue(
                f"branch {sample.branch_index} of session {sample.session_id} has {counted(length, 'token')},"
                f" a sequence holds {max_tokens}"
            )
        fitting = [place for place, left in enumerate(room) if left >= length]
        if fitting:
            place = min(fitting, key=lambda place: (room[place], place))
            packed[place].append(sample)
            room[place] -= length
        else:
            packed.append([sample])
            room.append(max_tokens - length)
    return packed
