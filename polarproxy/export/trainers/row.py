"""A training row as trainers see it: a prompt, and a response that begins with the first sampled token."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

from polarproxy.credit.rollouts import group_name
from polarproxy.errors import BadExport

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from numpy.typing import NDArray

    from polarproxy.batch.sample import Sample


@dataclass(frozen=True, slots=True, eq=False)
class Row:
    """A sample, and its place among the rows of one file. L tokens: P of the prompt, R = L − P of the response."""

    sample: Sample
    prompt_length: int
    """P; tokens before the first sampled one, trained or not."""
    index: int
    """Which row of the file, from 0."""
    group_index: int
    """Which group of the file, from 0. A session without a group is one of its own."""
    session_index: int
    """Which session of the file, from 0: its rows share it."""
    repetition: int
    """Which session of its group, from 0."""
    last: bool
    """Whether it is the last row of its session."""

    @property
    def group(self) -> str:
        """A name that only rows of the group share; `session:ID` where the session has none."""
        return group_name(self.sample.group_id, self.sample.session_id)

    @property
    def token_ids(self) -> NDArray[np.int64]:
        """`[L]`"""
        return self.sample.token_ids.astype(np.int64)

    @property
    def mask(self) -> NDArray[np.int64]:
        """`[L]`; 1 where trained on."""
        return self.sample.loss_mask.astype(np.int64)

    @property
    def logprobs(self) -> NDArray[np.float32]:
        """`[L]`; 0 where the mask is 0, as every trainer fills it: a NaN would spread through a masked sum."""
        return np.where(self.sample.loss_mask == 1, self.sample.rollout_logprobs, np.float32(0))

    @property
    def advantages(self) -> NDArray[np.float32] | None:
        """`[L]`; 0 where the mask is 0. None: no credit was computed."""
        return self.sample.advantages

    @property
    def versions(self) -> NDArray[np.int64]:
        """`[L]`; −1 where not sampled."""
        return self.sample.policy_versions.astype(np.int64)

    @property
    def trained_versions(self) -> NDArray[np.int64]:
        """Those of the trained tokens, `[trained]`; never empty."""
        trained: NDArray[np.int64] = self.versions[self.sample.loss_mask == 1]
        return trained

    def spans(self) -> Iterator[tuple[int, int]]:
        """Where trained tokens begin and end, a span a turn at most."""
        turn = np.where(self.sample.loss_mask == 1, self.sample.turn_index, -2)
        edges = np.flatnonzero(np.diff(turn)) + 1
        for start, stop in zip([0, *edges.tolist()], [*edges.tolist(), len(turn)], strict=True):
            if self.sample.loss_mask[start] == 1:
                yield start, stop


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Field(Generic[T]):
    """One line of a trainer's table: its word, and what of a row (or of a part of one) stands there."""

    name: str
    of: Callable[[T], Any]
    about: str
    """Shape, dtype and fill; `-` where the trainer reads nothing there and the field is only carried."""


def filled(fields: Iterable[Field[T]], row: T) -> dict[str, Any]:
    """A row by a trainer's table; fields whose value is None are left out."""
    values = ((field.name, field.of(row)) for field in fields)
    return {name: value for name, value in values if value is not None}


def rows_of(samples: Iterable[Sample]) -> Iterator[Row]:
    """The rows of one file, which come by group and session, with their numbers.

    Raises `BadExport` for a row that no trainer can use: nothing before its first sampled token, or a trained token of which
    the log-probability is not known, since 0 would stand there and mean certainty.
    """
    ahead = iter(samples)
    sample = next(ahead, None)
    before: Row | None = None
    while sample is not None:
        following = next(ahead, None)
        last = following is None or following.session_id != sample.session_id
        before = _row(sample, before, last=last)
        yield before
        sample = following


def _row(sample: Sample, before: Row | None, *, last: bool) -> Row:
    start = _prompt_length(sample)
    if before is None:
        return Row(sample, start, 0, 0, 0, 0, last)
    session = before.session_index + before.last
    alone = sample.group_id is None and before.last
    if alone or sample.group_id != before.sample.group_id:
        return Row(sample, start, before.index + 1, before.group_index + 1, session, 0, last)
    return Row(sample, start, before.index + 1, before.group_index, session, before.repetition + before.last, last)


def _prompt_length(sample: Sample) -> int:
    where = f"branch {sample.branch_index} of session {sample.session_id}"
    trained = sample.loss_mask == 1
    if not trained.any():
        raise BadExport(f"{where} trains no token")
    if not np.isfinite(sample.rollout_logprobs[trained]).all():
        raise BadExport(
            f"{where} trains tokens whose log-probability is not known; trainers would take them for certain."
            " The canonical formats (parquet, jsonl, arrow) keep such rows"
        )
    sampled = np.flatnonzero(trained | (sample.turn_index >= 0))
    if sampled[0] == 0:
        raise BadExport(f"{where} has no prompt: its first token is a sampled one")
    return int(sampled[0])


def scalar_reward(row: Row, trainer: str) -> float:
    """The reward; raises `BadExport` when none was set, for trainers that know no row without one."""
    if row.sample.reward is None:
        raise BadExport(
            f"session {row.sample.session_id} has no reward, and {trainer} knows no row without one;"
            " set one (`polarproxy reward set`), or export with credit, which leaves such sessions out"
        )
    return row.sample.reward
