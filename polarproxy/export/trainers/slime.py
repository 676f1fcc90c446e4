"""slime: `Sample`, as `--load-debug-rollout-data` reads it. Read in slime's `slime/utils/types.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from polarproxy.export.trainers.kept import after, read
from polarproxy.export.trainers.row import Field, filled, rows_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from polarproxy.batch.sample import Sample
    from polarproxy.export.trainers.kept import Kept
    from polarproxy.export.trainers.row import Row

COMPLETED = "completed"

FIELDS: tuple[Field[Row], ...] = (
    Field("group_index", lambda row: row.group_index, "int; the group of GRPO"),
    Field("index", lambda row: row.index, "int"),
    Field("rollout_id", lambda row: row.session_index, "int; rows of one session share it and count as one"),
    Field("prompt", lambda _: "", "str; text is not recorded with rows"),
    Field("tokens", lambda row: row.token_ids.tolist(), "int [P + R]"),
    Field("response", lambda _: "", "str"),
    Field("response_length", lambda row: len(row.token_ids) - row.prompt_length, "R"),
    Field("reward", lambda row: row.sample.reward, "float"),
    Field("loss_mask", lambda row: row.mask[row.prompt_length :].tolist(), "int [R]"),
    Field("weight_versions", lambda row: _versions(row), "str, one a trained turn"),
    Field("rollout_log_probs", lambda row: row.logprobs[row.prompt_length :].tolist(), "float [R]; 0.0 where masked"),
    Field("remove_sample", lambda _: False, "bool"),
    Field("status", lambda _: COMPLETED, "str"),
    Field("metadata", lambda row: _metadata(row), "-"),
    Field("train_metadata", lambda row: _train_metadata(row), "-"),
    Field("session_id", lambda row: row.sample.session_id, "str"),
)


def _versions(row: Row) -> list[str]:
    return [str(row.versions[start]) for start, _ in row.spans()]


def _metadata(row: Row) -> dict[str, Any]:
    return {"group_id": row.group, "task_id": row.sample.task_id, "branch_index": row.sample.branch_index}


def _train_metadata(row: Row) -> dict[str, Any]:
    weight = {"loss_weight": row.sample.loss_weight}
    return weight if row.advantages is None else weight | {"advantages": row.advantages[row.prompt_length :].tolist()}


def to_slime(samples: Iterable[Sample]) -> list[dict[str, Any]]:
    """What `Sample.from_dict` takes, a dict a row; `reward` is missing where none was set.

    `train_metadata` carries `loss_weight` and `advantages` (float `[R]`). slime computes its own advantages, by session
    (`rollout_id`), from the rewards. Raises `BadExport` for rows that no trainer can use.
    """
    return [filled(FIELDS, row) for row in rows_of(samples)]


def from_slime(rows: Iterable[Mapping[str, Any]]) -> list[Kept]:
    """The rows of such dicts."""
    return [_kept(row) for row in rows]


def _kept(row: Mapping[str, Any]) -> Kept:
    prompt = len(row["tokens"]) - row["response_length"]
    told = row["train_metadata"]
    carried = {
        "loss_weight": told["loss_weight"],
        "reward": row.get("reward"),
        "session_id": row["session_id"],
        "group_id": row["metadata"]["group_id"],
    }
    return read(
        row["tokens"],
        after(prompt, row["loss_mask"]),
        after(prompt, row["rollout_log_probs"]),
        after(prompt, told["advantages"]) if "advantages" in told else None,
        carried=carried,
    )
