"""The columns of a row, as Arrow knows them and as JSON shows them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from polarproxy.batch.sample import Sample

ARRAYS: tuple[tuple[str, Any], ...] = (
    ("token_ids", pa.int32()),
    ("loss_mask", pa.uint8()),
    ("rollout_logprobs", pa.float32()),
    ("advantages", pa.float32()),
    ("policy_versions", pa.int32()),
    ("turn_index", pa.int32()),
)
"""Columns with one value per token."""

VALUES: tuple[tuple[str, Any, Callable[[Sample], Any]], ...] = (
    ("temperature", pa.float64(), lambda row: row.temperature),
    ("top_p", pa.float64(), lambda row: row.top_p),
    ("top_k", pa.int32(), lambda row: row.top_k),
    ("logprobs_mode", pa.string(), lambda row: row.logprobs_mode),
    ("reward", pa.float64(), lambda row: row.reward),
    (
        "components",
        pa.list_(pa.struct([("name", pa.string()), ("value", pa.float64()), ("kind", pa.string())])),
        lambda row: [{"name": part.name, "value": part.value, "kind": part.kind.value} for part in row.components],
    ),
    ("loss_weight", pa.float64(), lambda row: row.loss_weight),
    ("session_tokens", pa.int32(), lambda row: row.session_tokens),
    ("session_logprob", pa.float64(), lambda row: row.session_logprob),
    ("session_id", pa.string(), lambda row: row.session_id),
    ("group_id", pa.string(), lambda row: row.group_id),
    ("task_id", pa.string(), lambda row: row.task_id),
    ("branch_index", pa.int32(), lambda row: row.branch_index),
    ("parent_branch", pa.int32(), lambda row: row.parent_branch),
    ("shared_prefix", pa.int32(), lambda row: row.shared_prefix),
    ("call_ids", pa.list_(pa.string()), lambda row: list(row.call_ids)),
    ("harness", pa.string(), lambda row: row.harness),
    ("model", pa.string(), lambda row: row.model),
    ("template_digest", pa.string(), lambda row: row.template_digest),
    ("faithful", pa.bool_(), lambda row: row.faithful),
    ("format_version", pa.int32(), lambda row: row.format_version),
)
"""Columns with one value per row."""


def _list_of(kind: Any) -> Any:
    """A list of which no element is null, which a reader need not ask of each."""
    return pa.list_(pa.field("element", kind, nullable=False))


SCHEMA = pa.schema(
    # Without credit there are no advantages; the others are always there, which Parquet writes faster.
    [pa.field(name, _list_of(kind), nullable=name == "advantages") for name, kind in ARRAYS]
    + [(name, kind) for name, kind, _ in VALUES]
)


class Tables:
    """Makes one table after the other in the same memory, which costs a fifth of new memory for each."""

    def __init__(self) -> None:
        self._memory: dict[str, NDArray[Any]] = {}

    def of(self, samples: Sequence[Sample]) -> Any:
        """An Arrow table of these rows. It is good until the next one is made."""
        columns = [self._list_column(name, kind, [getattr(row, name) for row in samples]) for name, kind in ARRAYS]
        columns += [pa.array([read(row) for row in samples], kind) for _, kind, read in VALUES]
        return pa.Table.from_arrays(columns, schema=SCHEMA)

    def _list_column(self, name: str, kind: Any, rows: Sequence[NDArray[Any] | None]) -> Any:
        """A list column from arrays, without a Python object per token; None is a null list."""
        empty = np.zeros(0, kind.to_pandas_dtype())
        present = [empty if row is None else row for row in rows]
        offsets = np.zeros(len(rows) + 1, np.int32)
        np.cumsum([len(row) for row in present], out=offsets[1:])
        missing = pa.array([row is None for row in rows], pa.bool_()) if any(row is None for row in rows) else None
        values = np.concatenate([empty, *present], out=self._room(name, empty.dtype, int(offsets[-1])))
        return pa.ListArray.from_arrays(pa.array(offsets), pa.array(values, kind), type=_list_of(kind), mask=missing)

    def _room(self, name: str, kind: np.dtype[Any], size: int) -> NDArray[Any]:
        memory = self._memory.get(name)
        if memory is None or len(memory) < size:
            memory = self._memory[name] = np.empty(size, kind)
        return memory[:size]


def to_arrow(samples: Sequence[Sample]) -> Any:
    """An Arrow table of these rows."""
    return Tables().of(samples)


def to_json(sample: Sample) -> dict[str, Any]:
    """One row as JSON values. NaN and infinities, which JSON does not know, are written as null by msgspec."""
    arrays = {name: getattr(sample, name) for name, _ in ARRAYS}
    told = {name: None if array is None else array.tolist() for name, array in arrays.items()}
    return told | {name: read(sample) for name, _, read in VALUES}
