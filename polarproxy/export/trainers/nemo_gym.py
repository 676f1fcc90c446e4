"""NeMo Gym: a `TokenEntry` a trained turn. Read in nemo-gym 0.7.0, `nemo_gym/token_id_capture/records.py` and `builder.py`."""

from __future__ import annotations

from collections import Counter
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from polarproxy.export.trainers.kept import read
from polarproxy.export.trainers.row import Field, Row, filled, rows_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from polarproxy.batch.sample import Sample
    from polarproxy.export.trainers.kept import Kept

SCHEMA_VERSION = 1


class Turn(NamedTuple):
    """A trained turn: tokens from `start` to `stop` of a row."""

    row: Row
    start: int
    stop: int
    call: str
    """What it is called in the file: by the call that sampled it."""
    parent: str | None
    """That of the trained turn before it. None: it is the row's first."""


FIELDS: tuple[Field[Turn], ...] = (
    Field("schema_version", lambda _: SCHEMA_VERSION, "int"),
    Field("rollout_id", lambda turn: f"{turn.row.sample.session_id}/{turn.row.sample.branch_index}", "str; one a row"),
    Field(
        "model_call_id", lambda turn: turn.call, "str; the call that sampled the turn; `CALL#2` for its second choice"
    ),
    Field("parent_call_id", lambda turn: turn.parent, "str; that of the turn before, if there is one"),
    Field("parent_resolution", lambda turn: "root" if turn.parent is None else "resolved", "str"),
    Field("model", lambda turn: turn.row.sample.model or "", "str"),
    Field("prompt_token_ids", lambda turn: turn.row.token_ids[: turn.start].tolist(), "int [P]; all before the turn"),
    Field("generation_token_ids", lambda turn: turn.row.token_ids[turn.start : turn.stop].tolist(), "int [N]"),
    Field("generation_log_probs", lambda turn: turn.row.logprobs[turn.start : turn.stop].tolist(), "float [N]"),
    Field("output_items", lambda _: [], "empty: text is not recorded with rows"),
    Field("advantages", lambda turn: _advantages(turn), "-"),
    Field("policy_version", lambda turn: int(turn.row.versions[turn.start]), "-"),
    Field("reward", lambda turn: turn.row.sample.reward, "-"),
    Field("loss_weight", lambda turn: turn.row.sample.loss_weight, "-"),
    Field("session_id", lambda turn: turn.row.sample.session_id, "-"),
    Field("group_id", lambda turn: turn.row.group, "-"),
)


def _advantages(turn: Turn) -> list[float] | None:
    return None if turn.row.advantages is None else turn.row.advantages[turn.start : turn.stop].tolist()


def to_nemo_gym(samples: Iterable[Sample]) -> Iterator[dict[str, Any]]:
    """A dict a trained turn, those of a row one after the other: `TokenEntry` allows fields of others, so advantages, reward
    and weight are carried. Turns that are context are in later prompts only. Raises `BadExport` for rows that no trainer can
    use."""
    session, trained = 0, Counter[str]()
    for row in rows_of(samples):
        if row.session_index != session:
            session, trained = row.session_index, Counter()
        parent = None
        for start, stop in row.spans():
            call = row.sample.call_ids[int(row.sample.turn_index[start])]
            trained[call] += 1
            # NeMo Gym chains turns by it. A call has several when it was asked for several choices.
            name = call if trained[call] == 1 else f"{call}#{trained[call]}"
            yield filled(FIELDS, Turn(row, start, stop, name, parent))
            parent = name


def from_nemo_gym(turns: Iterable[Mapping[str, Any]]) -> list[Kept]:
    """The rows of such dicts, up to their last trained tokens: what comes after those is in no turn."""
    return [_kept(list(entries)) for _, entries in groupby(turns, itemgetter("rollout_id"))]


def _kept(turns: list[Mapping[str, Any]]) -> Kept:
    tokens = [*turns[-1]["prompt_token_ids"], *turns[-1]["generation_token_ids"]]
    credited = "advantages" in turns[0]
    mask, versions = np.zeros(len(tokens), np.uint8), np.full(len(tokens), -1)
    logprobs, advantages = np.zeros(len(tokens), np.float32), np.zeros(len(tokens), np.float32)
    for turn in turns:
        start = len(turn["prompt_token_ids"])
        span = slice(start, start + len(turn["generation_token_ids"]))
        mask[span], versions[span], logprobs[span] = 1, turn["policy_version"], turn["generation_log_probs"]
        if credited:
            advantages[span] = turn["advantages"]
    return read(tokens, mask, logprobs, advantages if credited else None, versions, turns[0])
