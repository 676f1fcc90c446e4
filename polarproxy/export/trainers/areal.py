"""AReaL: one dict of tensors a trajectory. Read in areal 1.0.4, `areal/workflow/rlvr.py` and `areal/utils/data.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from polarproxy.export.trainers.kept import read
from polarproxy.export.trainers.row import Field, filled, rows_of, scalar_reward

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray

    from polarproxy.batch.sample import Sample
    from polarproxy.export.trainers.kept import Kept
    from polarproxy.export.trainers.row import Row

FIELDS: tuple[Field[Row], ...] = (
    Field("input_ids", lambda row: row.token_ids.astype(np.int32)[None], "int32 [1, L]"),
    Field("loss_mask", lambda row: row.mask.astype(np.int32)[None], "int32 [1, L]"),
    Field("logprobs", lambda row: row.logprobs[None], "float32 [1, L]; 0 where the mask is 0"),
    Field("versions", lambda row: row.versions.astype(np.int32)[None], "int32 [1, L]; −1 where not sampled"),
    Field("attention_mask", lambda row: np.ones((1, len(row.token_ids)), bool), "bool [1, L]"),
    Field("rewards", lambda row: np.asarray([scalar_reward(row, "areal")], np.float32), "float32 [1]"),
    Field("advantages", lambda row: _advantages(row), "-"),
    Field("loss_weight", lambda row: np.asarray([row.sample.loss_weight], np.float32), "-"),
    Field("group_index", lambda row: np.asarray([row.group_index]), "-"),
    Field("session_index", lambda row: np.asarray([row.session_index]), "-"),
)


def _advantages(row: Row) -> NDArray[np.float32] | None:
    return None if row.advantages is None else row.advantages[None]


def to_areal(samples: Iterable[Sample]) -> list[dict[str, NDArray[Any]]]:
    """A dict of arrays a row, which `concat_padded_tensors` makes a batch of; `advantages` is missing unless all rows have it.

    AReaL groups rows by where they stand and computes its own advantages; `advantages`, `loss_weight`, `group_index` and
    `session_index` are only carried. Raises `BadExport` for rows that no trainer can use, or that have no reward.
    """
    rows = [filled(FIELDS, row) for row in rows_of(samples)]
    # All dicts of a batch must hold the same names.
    shared = [field.name for field in FIELDS if all(field.name in row for row in rows)]
    return [{name: row[name] for name in shared} for row in rows]


def from_areal(rows: Iterable[Mapping[str, NDArray[Any]]]) -> list[Kept]:
    """The rows of such dicts."""
    return [_kept({name: value[0] for name, value in row.items()}) for row in rows]


def _kept(row: Mapping[str, Any]) -> Kept:
    carried = {"loss_weight": float(row["loss_weight"]), "reward": float(row["rewards"])}
    return read(row["input_ids"], row["loss_mask"], row["logprobs"], row.get("advantages"), row["versions"], carried)
