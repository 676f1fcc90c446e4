"""NeMo RL: `DatumSpec`, a log of messages that hold tokens. Read in NeMo RL's `nemo_rl/data/interfaces.py`,
`nemo_rl/data/llm_message_utils.py` and `nemo_rl/algorithms/grpo.py`."""

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

ASSISTANT, USER = "assistant", "user"

DATUM: tuple[Field[Row], ...] = (
    Field("message_log", lambda row: _messages(row), "the messages below, which join to the row"),
    Field("length", lambda row: len(row.token_ids), "int; L"),
    Field("extra_env_info", lambda row: _carried(row), "-"),
    Field("loss_multiplier", lambda row: row.sample.loss_weight, "float; the row's weight"),
    Field("idx", lambda row: row.index, "int"),
    Field("task_name", lambda row: row.sample.harness or "polarproxy", "str; the harness"),
)
MESSAGE = {
    "role": "`assistant`: a trained turn; `user`: everything else, so that nothing else is trained",
    "content": "str; empty, text is not recorded with rows",
    "token_ids": "int64 [N]",
    "token_loss_mask": "int64 [N]",
    "generation_logprobs": "float32 [N]; of an assistant's message only, as in NeMo RL",
    "advantages": "float32 [N]; 0 in a user's message",
}
TRAIN: tuple[Field[Row], ...] = (
    Field("input_ids", lambda row: row.token_ids, "int64 [B, S], right-padded"),
    Field(
        "generation_logprobs",
        lambda row: row.logprobs,
        "float32 [B, S]; place i speaks of token i, 0 where the mask is 0",
    ),
    Field("token_mask", lambda row: row.mask, "int64 [B, S]"),
    Field("advantages", lambda row: row.advantages, "float32 [B, S]"),
)
TRAIN_SCALARS: tuple[Field[Row], ...] = (
    Field("input_lengths", lambda row: len(row.token_ids), "int64 [B]"),
    Field("sample_mask", lambda row: np.float32(row.sample.loss_weight), "float32 [B]; the row's weight"),
)
_WHOLE_NUMBERS = ("input_ids", "token_mask", "input_lengths")
"""int64; the rest of the batch is float32."""


def _messages(row: Row) -> list[dict[str, Any]]:
    """The first is the prompt, by which NeMo RL groups; trained turns and what is between them take turns after it."""
    bounds = [(0, row.prompt_length, USER)]
    for start, stop in row.spans():
        if start > bounds[-1][1]:
            bounds.append((bounds[-1][1], start, USER))
        bounds.append((start, stop, ASSISTANT))
    if bounds[-1][1] < len(row.token_ids):
        bounds.append((bounds[-1][1], len(row.token_ids), USER))
    return [_message(row, slice(start, stop), role) for start, stop, role in bounds]


def _message(row: Row, span: slice, role: str) -> dict[str, Any]:
    message = {
        "role": role,
        "content": "",
        "token_ids": row.token_ids[span],
        "token_loss_mask": row.mask[span],
    }
    if role == ASSISTANT:
        message["generation_logprobs"] = row.logprobs[span]
    if row.advantages is not None:
        message["advantages"] = row.advantages[span]
    return message


def _carried(row: Row) -> dict[str, Any]:
    sample = row.sample
    return {
        "session_id": sample.session_id,
        "group_id": row.group,
        "branch_index": sample.branch_index,
        "reward": sample.reward,
        "policy_version": int(row.trained_versions.min()),
    }


def to_nemo_rl(samples: Iterable[Sample]) -> list[dict[str, Any]]:
    """A `DatumSpec` a row, of arrays. Raises `BadExport` for rows that no trainer can use."""
    return [filled(DATUM, row) for row in rows_of(samples)]


def to_nemo_rl_train(
    samples: Iterable[Sample], pad_token_id: int = 0, *, credited: bool = True
) -> dict[str, NDArray[Any]]:
    """The batch that the policy trains on, less what it computes itself (`prev_logprobs`, `reference_policy_logprobs`). B rows,
    the longest of S tokens, of no rows `[0, 0]`; `advantages` is missing unless all rows have them, or of no rows unless it is
    to be `credited`."""
    rows = list(rows_of(samples))
    size = max((len(row.token_ids) for row in rows), default=0)
    batch = {}
    for field in TRAIN:
        values = [field.of(row) for row in rows]
        known = all(value is not None for value in values)
        if known and (rows or credited or field.name != "advantages"):
            array = np.full((len(rows), size), pad_token_id if field.name == "input_ids" else 0, _kind(field))
            for place, value in enumerate(values):
                array[place, : len(value)] = value
            batch[field.name] = array
    return batch | {field.name: np.asarray([field.of(row) for row in rows], _kind(field)) for field in TRAIN_SCALARS}


def _kind(field: Field[Row]) -> type[np.generic]:
    return np.int64 if field.name in _WHOLE_NUMBERS else np.float32


def from_nemo_rl(rows: Iterable[Mapping[str, Any]]) -> list[Kept]:
    """The rows of `DatumSpec`s."""
    return [_kept(row) for row in rows]


def _kept(row: Mapping[str, Any]) -> Kept:
    log = row["message_log"]
    no_logprobs = (np.zeros(len(message["token_ids"]), np.float32) for message in log)
    return read(
        np.concatenate([message["token_ids"] for message in log]),
        np.concatenate([message["token_loss_mask"] for message in log]),
        np.concatenate(
            [message.get("generation_logprobs", zeros) for message, zeros in zip(log, no_logprobs, strict=True)]
        ),
        np.concatenate([message["advantages"] for message in log]) if "advantages" in log[0] else None,
        carried=row["extra_env_info"] | {"loss_weight": row["loss_multiplier"]},
    )


def from_nemo_rl_train(batch: Mapping[str, NDArray[Any]]) -> list[Kept]:
    """The rows of a batch that the policy trains on."""
    return list(_train_rows(batch))


def _train_rows(batch: Mapping[str, NDArray[Any]]) -> Iterator[Kept]:
    for place, length in enumerate(batch["input_lengths"].tolist()):
        row = {field.name: batch[field.name][place, :length] for field in TRAIN if field.name in batch}
        yield read(
            row["input_ids"],
            row["token_mask"],
            row["generation_logprobs"],
            row.get("advantages"),
            carried={"loss_weight": float(batch["sample_mask"][place])},
        )
