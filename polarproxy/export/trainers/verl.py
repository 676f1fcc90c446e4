"""verl: `DataProto` (padded) and the rows of its tensordict form (not padded). Read in verl 0.9.1, `verl/protocol.py`,
`verl/experimental/agent_loop` and `verl/trainer/ppo/v1/agent_loop_tq.py`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from polarproxy.export.trainers.kept import after, read
from polarproxy.export.trainers.row import Field, filled, rows_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from polarproxy.batch.sample import Sample
    from polarproxy.export.trainers.kept import Kept
    from polarproxy.export.trainers.row import Row

TENSORS: tuple[Field[Row], ...] = (
    Field("prompts", lambda row: row.token_ids[: row.prompt_length], "int64 [P], left-padded"),
    Field("responses", lambda row: row.token_ids[row.prompt_length :], "int64 [R], right-padded"),
    Field("response_mask", lambda row: row.mask[row.prompt_length :], "int64 [R]; 1 where trained, 0 on padding"),
    Field("rollout_log_probs", lambda row: row.logprobs[row.prompt_length :], "float32 [R]; 0 where the mask is 0"),
    Field("rm_scores", lambda row: _score(row), "float32 [R]; the reward at the last token, else 0"),
    Field("advantages", lambda row: _response_advantages(row), "float32 [R]; ours, where verl puts its own"),
)
NON_TENSORS: tuple[Field[Row], ...] = (
    Field("uid", lambda row: row.group, "the group of GRPO"),
    Field("__num_turns__", lambda row: len(row.sample.call_ids), "turns of the row"),
    Field("min_global_steps", lambda row: int(row.trained_versions.min()), "oldest weights of a trained token"),
    Field("max_global_steps", lambda row: int(row.trained_versions.max()), "latest weights of a trained token"),
    Field("session_id", lambda row: row.sample.session_id, "-"),
    Field("branch_index", lambda row: row.sample.branch_index, "-"),
    Field("loss_weight", lambda row: row.sample.loss_weight, "-"),
)
PADDED = ("input_ids", "attention_mask", "position_ids")
"""Made of the padded parts, int64 [B, P + R]: ids, 1 where there is a token, and its place among them."""
_WHOLE_NUMBERS = ("prompts", "responses", "response_mask")
"""int64; the rest of `TENSORS` is float32."""
_OF_CREDIT = ("rm_scores", "advantages")
"""What rows without credit may lack, so that a batch of none has it only as others of its export do."""


def _score(row: Row) -> NDArray[np.float32] | None:
    if row.sample.reward is None:
        return None
    scores = np.zeros(len(row.sample.token_ids) - row.prompt_length, np.float32)
    scores[-1] = row.sample.reward
    return scores


def _response_advantages(row: Row) -> NDArray[np.float32] | None:
    return None if row.advantages is None else row.advantages[row.prompt_length :]


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """The arguments of `DataProto.from_dict`, of numpy arrays. B rows, the longest prompt P, the longest response R."""

    tensors: Mapping[str, NDArray[Any]]
    """`prompts [B, P]`, the rest of `TENSORS` `[B, R]`, those of `PADDED` `[B, P + R]`. `rm_scores` and `advantages` are
    missing unless all rows have them."""
    non_tensors: Mapping[str, Sequence[Any]]
    """Of B values each."""
    meta_info: Mapping[str, Any]
    """`temperature`, when it is known and the same for all rows."""


def to_verl(samples: Iterable[Sample], pad_token_id: int = 0, *, credited: bool = True) -> Batch:
    """One padded batch of all rows, of no rows `[0, 0]`, with what rows with credit have, or without: `credited`. Raises
    `BadExport` for rows that no trainer can use."""
    rows = list(rows_of(samples))
    parts = [filled(TENSORS, row) for row in rows]
    # In the table's order; a set would have another in every process, and so would the bytes of a file.
    names = [field.name for field in TENSORS if all(field.name in part for part in parts)]
    if not rows and not credited:
        names = [name for name in names if name not in _OF_CREDIT]
    tensors = {name: _pad([part[name] for part in parts], name, pad_token_id) for name in names}
    there = np.concatenate(
        [
            _pad([np.ones_like(part["prompts"]) for part in parts], "prompts", 0),
            _pad([np.ones_like(part["responses"]) for part in parts], "responses", 0),
        ],
        axis=1,
    )
    tensors["input_ids"] = np.concatenate([tensors["prompts"], tensors["responses"]], axis=1)
    tensors["attention_mask"] = there
    tensors["position_ids"] = np.maximum(np.cumsum(there, axis=1) - 1, 0)
    told = [filled(NON_TENSORS, row) for row in rows]
    temperatures = {row.sample.temperature for row in rows}
    meta = {"temperature": temperatures.pop()} if len(temperatures) == 1 and None not in temperatures else {}
    return Batch(tensors, {field.name: [one[field.name] for one in told] for field in NON_TENSORS}, meta)


def to_verl_rows(samples: Iterable[Sample]) -> list[dict[str, Any]]:
    """A dict a row for `list_of_dict_to_tensordict`: the tensors of `TENSORS`, not padded, `loss_mask` (which verl's new
    trainer reads in the place of `response_mask`), `input_ids [P + R]`, `position_ids [P + R]` and the values of
    `NON_TENSORS`. `rm_scores` and `advantages` are missing unless all rows have them."""
    made = []
    for row in rows_of(samples):
        part = filled(TENSORS, row)
        place = {"input_ids": row.token_ids, "position_ids": np.arange(len(row.token_ids))}
        made.append(part | {"loss_mask": part["response_mask"]} | place | filled(NON_TENSORS, row))
    shared = [name for name in made[0] if all(name in one for one in made)] if made else []
    return [{name: one[name] for name in shared} for one in made]


def _pad(values: Sequence[NDArray[Any]], name: str, pad_token_id: int) -> NDArray[Any]:
    fill = pad_token_id if name in ("prompts", "responses") else 0
    kind = np.int64 if name in _WHOLE_NUMBERS else np.float32
    array: NDArray[Any] = np.full((len(values), max(map(len, values), default=0)), fill, kind)
    for place, value in enumerate(values):
        if name == "prompts":
            array[place, array.shape[1] - len(value) :] = value
        else:
            array[place, : len(value)] = value
    return array


def from_verl(batch: Batch) -> list[Kept]:
    """The rows of a padded batch."""
    tensors, width = batch.tensors, batch.tensors["prompts"].shape[1]
    attention = batch.tensors["attention_mask"].astype(bool)
    rows = []
    for place, there in enumerate(attention):
        lengths = int(there[:width].sum()), int(there[width:].sum())
        part = {name: tensors[name][place, : lengths[1]] for name in tensors if name not in ("prompts", *PADDED)}
        part["prompts"] = tensors["prompts"][place, width - lengths[0] :]
        rows.append(_kept(part | {name: batch.non_tensors[name][place] for name in batch.non_tensors}))
    return rows


def from_verl_rows(rows: Iterable[Mapping[str, Any]]) -> list[Kept]:
    """The rows of the tensordict form."""
    return [_kept(row) for row in rows]


def _kept(row: Mapping[str, Any]) -> Kept:
    prompt = len(row["prompts"])
    advantages, scores = row.get("advantages"), row.get("rm_scores")
    return read(
        np.concatenate([row["prompts"], row["responses"]]),
        after(prompt, row["response_mask"]),
        after(prompt, row["rollout_log_probs"]),
        None if advantages is None else after(prompt, advantages),
        carried={
            "loss_weight": row["loss_weight"],
            "reward": None if scores is None else float(scores[-1]),
            "session_id": row["session_id"],
            "group_id": row["uid"],
        },
    )
