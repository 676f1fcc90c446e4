"""SkyRL: the rows of a step-wise `GeneratorOutput`. Read in skyrl 0.4.0, `skyrl/train/generators/base.py` and
`skyrl/train/utils/trainer_utils.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from polarproxy.export.trainers.kept import after, read
from polarproxy.export.trainers.row import Field, filled, rows_of, scalar_reward

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from polarproxy.batch.sample import Sample
    from polarproxy.export.trainers.kept import Kept
    from polarproxy.export.trainers.row import Row

FIELDS: tuple[Field[Row], ...] = (
    Field("prompt_token_ids", lambda row: row.token_ids[: row.prompt_length].tolist(), "int [P]"),
    Field("response_ids", lambda row: row.token_ids[row.prompt_length :].tolist(), "int [R]"),
    Field(
        "rewards",
        lambda row: _rewards(row),
        "float [R]; the reward at the last token of the session's last row, else 0.0",
    ),
    Field("loss_masks", lambda row: row.mask[row.prompt_length :].tolist(), "int [R]"),
    Field("rollout_logprobs", lambda row: row.logprobs[row.prompt_length :].tolist(), "float [R]; 0.0 where masked"),
    Field("trajectory_ids", lambda row: _trajectory(row), "the group, and which session of it"),
    Field("is_last_step", lambda row: row.last, "bool; of the last row of a session"),
    Field("env_metrics", lambda row: _carried(row), "-"),
    Field("advantages", lambda row: _advantages(row), "-"),
)
ABSENT = ("stop_reasons", "rollout_metrics", "trajectory_generation_times", "rollout_expert_indices")
"""What `GeneratorOutput` may hold and rows do not know: None in it."""


def _rewards(row: Row) -> list[float]:
    rewards = [0.0] * (len(row.token_ids) - row.prompt_length)
    reward = scalar_reward(row, "skyrl")
    if row.last:
        rewards[-1] = reward
    return rewards


def _trajectory(row: Row) -> dict[str, Any]:
    return {"instance_id": row.group, "repetition_id": row.repetition}


def _advantages(row: Row) -> list[float] | None:
    return None if row.advantages is None else row.advantages[row.prompt_length :].tolist()


def _carried(row: Row) -> dict[str, Any]:
    sample = row.sample
    return {
        "session_id": sample.session_id,
        "branch_index": sample.branch_index,
        "reward": sample.reward,
        "loss_weight": sample.loss_weight,
    }


def to_skyrl(samples: Iterable[Sample]) -> Iterator[dict[str, Any]]:
    """A dict a row, with the values that the lists of `GeneratorOutput` hold for it.

    `advantages` is a list that SkyRL passes on and does not read: it computes its own, by session. Raises `BadExport` for
    rows that no trainer can use, or that have no reward.
    """
    return (filled(FIELDS, row) for row in rows_of(samples))


def generator_output(rows: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """The rows as a `GeneratorOutput`: a list of values each; `trajectory_ids` are dicts of the arguments of `TrajectoryID`.
    `advantages` is missing unless all rows have it."""
    held = list(rows)
    columns = {field.name: [row.get(field.name) for row in held] for field in FIELDS}
    if any(value is None for value in columns["advantages"]):
        del columns["advantages"]
    return columns | dict.fromkeys(ABSENT)


def from_skyrl(output: Mapping[str, Sequence[Any]]) -> list[Kept]:
    """The rows of a `GeneratorOutput` that was made here."""
    rows = []
    for place, prompt in enumerate(output["prompt_token_ids"]):
        carried = output["env_metrics"][place] | {"group_id": output["trajectory_ids"][place]["instance_id"]}
        rows.append(
            read(
                [*prompt, *output["response_ids"][place]],
                after(len(prompt), output["loss_masks"][place]),
                after(len(prompt), output["rollout_logprobs"][place]),
                after(len(prompt), output["advantages"][place]) if "advantages" in output else None,
                carried=carried,
            )
        )
    return rows
