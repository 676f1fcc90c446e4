"""OpenRLHF: `Experience`, and what an agent's execution returns. Read in openrlhf 0.11.2,
`openrlhf/trainer/ppo_utils/experience.py`, `samples_generator.py` and `openrlhf/utils/agent.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from polarproxy.export.trainers.kept import read
from polarproxy.export.trainers.row import Field, filled, rows_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray

    from polarproxy.batch.sample import Sample
    from polarproxy.export.trainers.kept import Kept
    from polarproxy.export.trainers.row import Row

EXPERIENCE: tuple[Field[Row], ...] = (
    Field("sequences", lambda row: row.token_ids[None], "int64 [1, L]"),
    Field("attention_mask", lambda row: np.ones((1, len(row.token_ids)), np.int64), "int64 [1, L]"),
    Field("action_mask", lambda row: row.mask[None, 1:], "int64 [1, L − 1]; place i speaks of token i + 1"),
    Field("rollout_log_probs", lambda row: row.logprobs[None, 1:], "float32 [1, L − 1]; 0 where the mask is 0"),
    Field("advantages", lambda row: _advantages(row), "float32 [1, L − 1]; ours, where OpenRLHF puts its own"),
    Field("returns", lambda row: _advantages(row), "float32 [1, L − 1]; the same"),
    Field("rewards", lambda row: _reward(row), "float32 [1]"),
    Field("response_length", lambda row: np.asarray([_response_length(row)]), "int64 [1]; first to last trained token"),
    Field("total_length", lambda row: np.asarray([len(row.token_ids)], np.float32), "float32 [1]"),
    Field("index", lambda row: [row.index], "[1]"),
    Field("prompts", lambda row: [row.group], "[1]; the group's name: text is not recorded with rows"),
    Field("labels", lambda _: [""], "[1]"),
    Field("info", lambda row: _info(row), "-"),
)
AGENT: tuple[Field[Row], ...] = (
    Field("prompt", lambda row: row.group, "str; the group's name"),
    Field("label", lambda _: "", "str"),
    Field("reward", lambda row: row.sample.reward, "float"),
    Field("scores", lambda row: row.sample.reward, "float"),
    Field("observation_tokens", lambda row: row.token_ids.tolist(), "int [L]"),
    Field("action_ranges", lambda row: [list(span) for span in row.spans()], "[start, end) of each trained turn"),
    Field("rollout_log_probs", lambda row: row.logprobs.tolist(), "float [L]; 0.0 outside the ranges"),
    Field("extra_logs", lambda row: {"loss_weight": row.sample.loss_weight}, "-"),
)


def _advantages(row: Row) -> NDArray[np.float32] | None:
    return None if row.advantages is None else row.advantages[None, 1:]


def _reward(row: Row) -> NDArray[np.float32] | None:
    return None if row.sample.reward is None else np.asarray([row.sample.reward], np.float32)


def _response_length(row: Row) -> int:
    trained = np.flatnonzero(row.mask)
    return int(trained[-1] - trained[0]) + 1


def _info(row: Row) -> dict[str, Any]:
    return {
        "loss_weight": np.asarray([row.sample.loss_weight], np.float32),
        "session_index": np.asarray([row.session_index]),
    }


def to_openrlhf(samples: Iterable[Sample]) -> list[dict[str, Any]]:
    """The arguments of one `Experience` a row, of arrays; fields that are not known are missing.

    Log-probabilities and masks are those of the tokens after the first, as everywhere in OpenRLHF. Raises `BadExport` for
    rows that no trainer can use.
    """
    return [filled(EXPERIENCE, row) for row in rows_of(samples)]


def to_openrlhf_agent(samples: Iterable[Sample]) -> list[dict[str, Any]]:
    """What an agent's execution returns, a dict a row; it has no room for advantages: OpenRLHF computes them."""
    return [filled(AGENT, row) for row in rows_of(samples)]


def from_openrlhf(rows: Iterable[Mapping[str, Any]]) -> list[Kept]:
    """The rows of the arguments of `Experience`s."""
    return [_kept(row) for row in rows]


def _kept(row: Mapping[str, Any]) -> Kept:
    advantages, reward = row.get("advantages"), row.get("rewards")
    return read(
        row["sequences"][0],
        _unshifted(row["action_mask"]),
        _unshifted(row["rollout_log_probs"]),
        None if advantages is None else _unshifted(advantages),
        carried={
            "loss_weight": float(row["info"]["loss_weight"][0]),
            "reward": None if reward is None else float(reward[0]),
            "group_id": row["prompts"][0],
        },
    )


def _unshifted(values: NDArray[Any]) -> NDArray[Any]:
    return np.concatenate([np.zeros(1, values.dtype), values[0]])


def from_openrlhf_agent(rows: Iterable[Mapping[str, Any]]) -> list[Kept]:
    """The rows of agents' results."""
    made = []
    for row in rows:
        mask = np.zeros(len(row["observation_tokens"]), np.uint8)
        for start, end in row["action_ranges"]:
            mask[start:end] = 1
        carried = {
            "loss_weight": row["extra_logs"]["loss_weight"],
            "reward": row.get("reward"),
            "group_id": row["prompt"],
        }
        made.append(read(row["observation_tokens"], mask, row["rollout_log_probs"], carried=carried))
    return made
