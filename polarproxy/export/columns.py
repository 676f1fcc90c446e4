"""The columns of a row, as Arrow knows them and as JSON shows them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

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


_JOINED = 4
"""How many pieces short rows may fill together."""


class Tables:
    """Makes one table after the other in the same memory, which costs a fifth of new memory for each."""

    def __init__(self, piece: int | None = None) -> None:
        """Columns of tokens come in pieces: a row of at least so many tokens as it lies, without a copy, and shorter ones
        together. Whoever works on one piece after the other finds each still in the processor's cache. None: they are whole."""
        self._piece = piece
        self._memory: dict[str, NDArray[Any]] = {}

    def of(self, samples: Sequence[Sample]) -> Any:
        """An Arrow table of these rows. It is good until the next one is made, and while the rows' arrays stay as they are."""
        pieces = [_Piece(rows) for rows in _cut(samples, self._piece)]
        columns = [self._list_column(name, kind, pieces) for name, kind in ARRAYS]
        columns += [pa.array([read(row) for row in samples], kind) for _, kind, read in VALUES]
        return pa.Table.from_arrays(columns, schema=SCHEMA)

    def _list_column(self, name: str, kind: Any, pieces: Sequence[_Piece]) -> Any:
        """A list column from arrays, without a Python object per token; None is a null list."""
        dtype, of_lists = kind.to_pandas_dtype(), _list_of(kind)
        room = self._room(name, dtype, sum(piece.tokens for piece in pieces if len(piece.rows) != 1))
        lists, used = [], 0
        for piece in pieces:
            arrays = [getattr(row, name) for row in piece.rows]
            present = [array for array in arrays if array is not None]
            validity, offsets = (None, piece.offsets) if len(present) == len(arrays) else _nulls(arrays)
            if len(piece.rows) == 1 and present:
                # Taken as it lies, so that it must be of the kind and without gaps.
                values = np.ascontiguousarray(present[0], dtype)
            else:
                values = room[used : used + sum(map(len, present))]
                np.concatenate([values[:0], *present], out=values)
                used += len(values)
            child = pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)])
            lists.append(pa.Array.from_buffers(of_lists, len(arrays), [validity, offsets], children=[child]))
        return pa.chunked_array(lists, of_lists)

    def _room(self, name: str, kind: type[np.generic], size: int) -> NDArray[Any]:
        memory = self._memory.get(name)
        if memory is None or len(memory) < size:
            memory = self._memory[name] = np.empty(size, kind)
        return memory[:size]


class _Piece:
    """Rows whose tokens lie together."""

    def __init__(self, rows: Sequence[Sample]) -> None:
        self.rows = rows
        lengths = [len(row.token_ids) for row in rows]
        self.tokens = sum(lengths)
        self.offsets = _offsets(lengths)


def _cut(samples: Sequence[Sample], piece: int | None) -> Iterator[Sequence[Sample]]:
    """Rows one after the other: a row of at least so many tokens alone, shorter ones together."""
    if piece is None:
        yield samples
        return
    start = tokens = 0
    for place, row in enumerate(samples):
        long = len(row.token_ids) >= piece
        if (long or tokens >= _JOINED * piece) and start < place:
            yield samples[start:place]
            start, tokens = place, 0
        tokens += len(row.token_ids)
        if long:
            yield samples[place : place + 1]
            start, tokens = place + 1, 0
    if start < len(samples):
        yield samples[start:]


def _offsets(lengths: Sequence[int]) -> Any:
    """Where lists of these lengths begin and end, as Arrow keeps it."""
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return pa.py_buffer(offsets)


def _nulls(arrays: Sequence[NDArray[Any] | None]) -> tuple[Any, Any]:
    """Which lists there are, and where they begin and end when some are not."""
    there = pa.array([array is not None for array in arrays], pa.bool_()).buffers()[1]
    return there, _offsets([0 if array is None else len(array) for array in arrays])


def to_arrow(samples: Sequence[Sample]) -> Any:
    """An Arrow table of these rows."""
    return Tables().of(samples)


def to_json(sample: Sample) -> dict[str, Any]:
    """One row as JSON values. NaN and infinities, which JSON does not know, are written as null by msgspec."""
    arrays = {name: getattr(sample, name) for name, _ in ARRAYS}
    told = {name: None if array is None else array.tolist() for name, array in arrays.items()}
    return told | {name: read(sample) for name, _, read in VALUES}
