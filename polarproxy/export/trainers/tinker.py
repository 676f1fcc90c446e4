"""Tinker: `Datum`. Read in tinker 0.38.0, `tinker/types/datum.py` and `tensor_data.py`, and in its page on losses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from polarproxy.export.trainers.kept import read
from polarproxy.export.trainers.row import Field, filled, rows_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from numpy.typing import NDArray

    from polarproxy.batch.sample import Sample
    from polarproxy.export.trainers.kept import Kept
    from polarproxy.export.trainers.row import Row

LOSS_INPUTS: tuple[Field[Row], ...] = (
    Field(
        "target_tokens", lambda row: _tensor(row.token_ids[1:], "int64"), "int64 [L − 1]; each input token's successor"
    ),
    Field("logprobs", lambda row: _tensor(row.logprobs[1:], "float32"), "float32 [L − 1]; 0 where the mask is 0"),
    Field("advantages", lambda row: _advantages(row), "float32 [L − 1]; 0 where the mask is 0"),
    Field(
        "mask",
        lambda row: _tensor(row.mask[1:].astype(np.float32), "float32"),
        "float32 [L − 1]; the cookbook's, not a loss's",
    ),
)
CARRIED: tuple[Field[Row], ...] = (
    Field("session_id", lambda row: row.sample.session_id, "-"),
    Field("group_id", lambda row: row.group, "-"),
    Field("reward", lambda row: row.sample.reward, "-"),
    Field("loss_weight", lambda row: row.sample.loss_weight, "-"),
)


def _tensor(values: NDArray[Any], dtype: str) -> dict[str, Any]:
    """The arguments of `TensorData`."""
    return {"data": values.tolist(), "dtype": dtype, "shape": [len(values)]}


def _advantages(row: Row) -> dict[str, Any] | None:
    return None if row.advantages is None else _tensor(row.advantages[1:], "float32")


def to_tinker(samples: Iterable[Sample]) -> Iterator[dict[str, Any]]:
    """A dict a row: under `datum` the arguments of `Datum`, beside it the values of `CARRIED`.

    `advantages` is missing when no credit was computed. Tinker's losses sum over tokens and know no weight of a row. Raises
    `BadExport` for rows that no trainer can use.
    """
    for row in rows_of(samples):
        chunk = {"type": "encoded_text", "tokens": row.token_ids[:-1].tolist()}
        datum = {"model_input": {"chunks": [chunk]}, "loss_fn_inputs": filled(LOSS_INPUTS, row)}
        yield {"datum": datum} | filled(CARRIED, row)


def from_tinker(rows: Iterable[Mapping[str, Any]]) -> list[Kept]:
    """The rows of such dicts."""
    return [_kept(row) for row in rows]


def _kept(row: Mapping[str, Any]) -> Kept:
    given = {name: [0, *tensor["data"]] for name, tensor in row["datum"]["loss_fn_inputs"].items()}
    first = row["datum"]["model_input"]["chunks"][0]["tokens"][0]
    tokens = [first, *given["target_tokens"][1:]]
    return read(tokens, given["mask"], given["logprobs"], given.get("advantages"), carried=row)
