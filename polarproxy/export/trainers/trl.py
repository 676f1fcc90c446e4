"""TRL: what `rollout_func` returns, a row each, and a `rollout_func` that replays such rows. Read in trl 1.16.0,
`trl/trainer/grpo_trainer.py` (`_generate`, `_generate_and_score_completions`, `_compute_loss`)."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from polarproxy.errors import BadExport
from polarproxy.export.trainers.kept import after, read
from polarproxy.export.trainers.row import Field, filled, rows_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from polarproxy.batch.sample import Sample
    from polarproxy.export.trainers.kept import Kept
    from polarproxy.export.trainers.row import Row

FIELDS: tuple[Field[Row], ...] = (
    Field("prompt", lambda row: row.group, "str; the group's name, by which rows are found again: TRL repeats prompts"),
    Field("prompt_ids", lambda row: row.sample.token_ids[: row.prompt_length], "int32 [P]"),
    Field("completion_ids", lambda row: row.sample.token_ids[row.prompt_length :], "int32 [R]"),
    Field("logprobs", lambda row: row.logprobs[row.prompt_length :], "float32 [R]; 0 where masked"),
    Field("env_mask", lambda row: row.sample.loss_mask[row.prompt_length :], "uint8 [R]; 1 where trained"),
    Field("reward", lambda row: row.sample.reward, "float or null; for a reward function"),
    Field("advantages", lambda row: _advantages(row), "-"),
    Field("loss_weight", lambda row: row.sample.loss_weight, "-"),
    Field("session_id", lambda row: row.sample.session_id, "-"),
    Field("branch_index", lambda row: row.sample.branch_index, "-"),
)
ROLLOUT = ("prompt_ids", "completion_ids", "logprobs", "env_mask")
"""What TRL itself reads; everything else of a row is handed to reward functions."""


def _advantages(row: Row) -> NDArray[np.float32] | None:
    return None if row.advantages is None else row.advantages[row.prompt_length :]


def to_trl(samples: Iterable[Sample]) -> Iterator[dict[str, Any]]:
    """A dict of arrays a row; every field is there, None where it is not known. Raises `BadExport` for rows that no trainer can
    use."""
    for row in rows_of(samples):
        yield dict.fromkeys((field.name for field in FIELDS), None) | filled(FIELDS, row)


def from_trl(rows: Iterable[Mapping[str, Any]]) -> list[Kept]:
    """The rows of such dicts."""
    return [_kept(row) for row in rows]


def _kept(row: Mapping[str, Any]) -> Kept:
    prompt = len(row["prompt_ids"])
    advantages = row["advantages"]
    return read(
        [*row["prompt_ids"], *row["completion_ids"]],
        after(prompt, row["env_mask"]),
        after(prompt, row["logprobs"]),
        None if advantages is None else after(prompt, advantages),
        carried={**row, "group_id": row["prompt"]},
    )


class Replay:
    """A `rollout_func` that gives TRL recorded rows: for the k-th time that a prompt is asked for, the k-th row of its group.

    `num_generations` of the trainer must be `self.num_generations`: the rows of the largest group. A smaller group is filled
    with rows that train nothing: one token, masked, without a reward, so that TRL leaves them out of the baseline too.
    """

    def __init__(self, rows: Iterable[Mapping[str, Any]]) -> None:
        self._groups: dict[str, list[Mapping[str, Any]]] = {}
        for row in rows:
            self._groups.setdefault(row["prompt"], []).append(row)
        if not self._groups:
            raise BadExport("there are no rows to replay")

    @property
    def num_generations(self) -> int:
        """How many rows the largest group has, and at least the 2 that TRL wants."""
        return max(2, *map(len, self._groups.values()))

    @property
    def prompts(self) -> list[dict[str, str]]:
        """The training dataset: `Dataset.from_list(replay.prompts)`."""
        return [{"prompt": prompt} for prompt in self._groups]

    def __call__(self, prompts: Sequence[str], trainer: object) -> dict[str, list[Any]]:
        """What TRL reads, and every other field of the rows by its name, a value each. Raises `BadExport` for a prompt that
        has no rows, and for one that is not asked for `num_generations` times (several processes: give each whole groups)."""
        asked = Counter(prompts)
        unknown = sorted(asked.keys() - self._groups.keys())
        if unknown:
            raise BadExport(f"there are no rows of {unknown[0]!r}; take the prompts from `Replay.prompts`")
        odd = [prompt for prompt, times in asked.items() if times % self.num_generations]
        if odd:
            raise BadExport(
                f"{odd[0]!r} was asked for {asked[odd[0]]} times; set num_generations to {self.num_generations}"
            )
        turn: Counter[str] = Counter()
        rows = []
        for prompt in prompts:
            rows.append(self._row(prompt, turn[prompt] % self.num_generations))
            turn[prompt] += 1
        return {field.name: [row[field.name] for row in rows] for field in FIELDS if field.name != "prompt"}

    def _row(self, prompt: str, place: int) -> Mapping[str, Any]:
        group = self._groups[prompt]
        if place < len(group):
            return group[place]
        first = group[0]
        idle = {"completion_ids": first["completion_ids"][:1], "logprobs": [0.0], "env_mask": [0], "reward": None}
        return {**first, **idle, "advantages": [0.0], "loss_weight": 0.0}
