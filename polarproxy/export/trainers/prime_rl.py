"""prime-rl: a `TrainingBatch` of `TrainingSample`s in MessagePack, as its file transport carries it (`rollouts.bin`). Read in
prime-rl's `src/prime_rl/transport/types.py` and `filesystem.py`. Structs are arrays on the wire: the order is the format."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np

from polarproxy.batch.sample import MIXED_SAMPLING
from polarproxy.errors import BadExport
from polarproxy.export.trainers.kept import read
from polarproxy.export.trainers.row import Field, filled, rows_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from polarproxy.batch.sample import Sample
    from polarproxy.export.trainers.kept import Kept
    from polarproxy.export.trainers.row import Row


class EncodedTensor(msgspec.Struct, array_like=True):
    """A tensor of a multimodal model; never written here."""

    dtype: str
    shape: list[int]
    data: bytes


class RoutedExperts(msgspec.Struct, array_like=True):
    """`[L, layers, topk]`; never written here."""

    data: bytes
    shape: list[int]
    dtype: str


class TrainingSample(msgspec.Struct, array_like=True, omit_defaults=True):
    """One row; lists are of one value a token, `[L]`, and None where there is no such stream."""

    token_ids: list[int]
    mask: list[bool]
    logprobs: list[float]
    temperatures: list[float]
    env_name: str
    ref_logprobs: list[float] | None = None
    mm_kwargs: dict[str, EncodedTensor] | None = None
    routed_experts: RoutedExperts | None = None
    mm_token_type_ids: list[int] | None = None
    rl_weights: list[float] | None = None
    ce_weights: list[float] | None = None
    ref_kl_weights: list[float] | None = None
    advantages: list[float] | None = None


class TrainingBatch(msgspec.Struct, array_like=True, omit_defaults=True):
    """The rows of one step."""

    examples: list[TrainingSample]
    step: int = 0


FIELDS: tuple[Field[Row], ...] = (
    Field("token_ids", lambda row: row.token_ids.tolist(), "int [L]"),
    Field("mask", lambda row: (row.mask == 1).tolist(), "bool [L]"),
    Field("logprobs", lambda row: row.logprobs.tolist(), "float [L]; 0.0 where the mask is false"),
    Field("temperatures", lambda row: [_temperature(row)] * len(row.token_ids), "float [L]; 1.0 where not known"),
    Field("env_name", lambda row: row.sample.harness or "polarproxy", "str; the harness"),
    Field("rl_weights", lambda row: _weights(row), "float [L]; the row's weight, 0.0 where the mask is false"),
    Field("advantages", lambda row: None if row.advantages is None else row.advantages.tolist(), "float [L]"),
)


def _temperature(row: Row) -> float:
    """1 where nobody said it (warning `temperature_unknown`): it is what engines then sample at."""
    sample = row.sample
    if sample.temperature is None and MIXED_SAMPLING not in sample.warnings:
        return 1.0
    if sample.temperature is None or sample.temperature <= 0:
        what = "several temperatures" if sample.temperature is None else f"temperature {sample.temperature:g}"
        raise BadExport(
            f"session {sample.session_id} was sampled at {what}; prime-rl divides logits by one that is above 0."
            " Choose another format, or leave the session out"
        )
    return sample.temperature


def _weights(row: Row) -> list[float] | None:
    """None, which means 1 on every trained token, where that is the row's weight."""
    if row.sample.loss_weight == 1:
        return None
    return [row.sample.loss_weight if trained else 0.0 for trained in row.mask.tolist()]


def to_prime_rl(samples: Iterable[Sample]) -> Iterator[TrainingSample]:
    """A struct a row. There is no room for the reward, the group or the session.

    Raises `BadExport` for rows that no trainer can use, and for those sampled at several temperatures or at 0.
    """
    for row in rows_of(samples):
        yield TrainingSample(**filled(FIELDS, row))


def from_prime_rl(samples: Iterable[TrainingSample]) -> list[Kept]:
    """The rows of such structs."""
    return [_kept(sample) for sample in samples]


def _kept(sample: TrainingSample) -> Kept:
    first = int(np.argmax(sample.mask))
    weight = 1.0 if sample.rl_weights is None else sample.rl_weights[first]
    return read(sample.token_ids, sample.mask, sample.logprobs, sample.advantages, carried={"loss_weight": weight})
