"""Canonical rows, read back from the files of an export."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa

from polarproxy.batch.sample import FORMAT_VERSION, Sample
from polarproxy.errors import UNREADABLE, BadExport, InvalidValue
from polarproxy.export.columns import ARRAYS, VALUES
from polarproxy.model import ComponentKind, RewardComponent

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray


def of_arrow(table: Any) -> Iterator[Sample]:
    """The rows of an Arrow table or record batch; raises `BadExport` when it is none of ours."""
    names = [name for name, *_ in (*ARRAYS, *VALUES)]
    missing = [name for name in names if name not in table.schema.names]
    if missing:
        raise BadExport(f"these are no canonical rows: the column {missing[0]} is missing")
    arrays = {name: _arrays(table.column(name), np.dtype(kind.to_pandas_dtype())) for name, kind in ARRAYS}
    values = {name: table.column(name).to_pylist() for name, *_ in VALUES}
    for place in range(table.num_rows):
        row = {name: column[place] for name, column in arrays.items()}
        yield _sample(row, {name: column[place] for name, column in values.items()})


def of_json(line: bytes) -> Sample:
    """The row of a line; raises `BadExport` when it is none of ours."""
    try:
        told: dict[str, Any] = msgspec.json.decode(line, type=dict[str, Any])
        arrays = {name: _array(told[name], np.dtype(kind.to_pandas_dtype())) for name, kind in ARRAYS}
        return _sample(arrays, {name: told[name] for name, *_ in VALUES})
    except (*UNREADABLE, KeyError, ValueError, TypeError) as error:
        raise BadExport(f"this line is no canonical row: {error}") from error


def _array(values: list[Any] | None, kind: np.dtype[Any]) -> NDArray[Any] | None:
    if values is None:
        return None
    return np.asarray([np.nan if value is None else value for value in values], kind)


def _arrays(column: Any, kind: np.dtype[Any]) -> list[NDArray[Any] | None]:
    """Lists of a column as arrays of their own, without a Python object per token."""
    if isinstance(column, pa.ChunkedArray):
        return [array for chunk in column.chunks for array in _arrays(chunk, kind)]
    values = column.values.to_numpy(zero_copy_only=False).astype(kind, copy=False)
    bounds = column.offsets.to_numpy()
    return [
        values[start:stop] if valid else None
        for start, stop, valid in zip(bounds[:-1], bounds[1:], column.is_valid().to_pylist(), strict=True)
    ]


def _sample(arrays: Mapping[str, Any], values: Mapping[str, Any]) -> Sample:
    version = values["format_version"]
    if version != FORMAT_VERSION:
        raise BadExport(f"these rows have the format version {version}; this polarproxy reads {FORMAT_VERSION}")
    components = tuple(
        RewardComponent(part["name"], part["value"], ComponentKind(part["kind"])) for part in values["components"]
    )
    known = dict(values) | {"components": components, "call_ids": tuple(values["call_ids"])}
    try:
        return Sample(**arrays, **known)
    except InvalidValue as error:
        raise BadExport(f"this is no canonical row: {error}") from error
