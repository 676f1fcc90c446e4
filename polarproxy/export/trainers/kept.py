"""What of a row is left in a trainer's format: what comes back when it is read again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from polarproxy.credit.rollouts import group_name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import ArrayLike, NDArray

    from polarproxy.batch.sample import Sample


@dataclass(frozen=True, slots=True, eq=False)
class Kept:
    """One row, L tokens. None: the format has no room for it, or there was none."""

    token_ids: NDArray[np.int32]
    """`[L]`"""
    loss_mask: NDArray[np.uint8]
    """`[L]`"""
    rollout_logprobs: NDArray[np.float32]
    """`[L]`; NaN where the mask is 0."""
    advantages: NDArray[np.float32] | None = None
    """`[L]`; 0 where the mask is 0."""
    policy_versions: NDArray[np.int32] | None = None
    """`[L]`; −1 where the mask is 0."""
    loss_weight: float | None = None
    reward: float | None = None
    session_id: str | None = None
    group_id: str | None = None
    """As `Row.group` names it."""


def kept(sample: Sample) -> Kept:
    """All that a format could keep of a row."""
    trained = sample.loss_mask == 1
    return Kept(
        token_ids=sample.token_ids,
        loss_mask=sample.loss_mask,
        rollout_logprobs=np.where(trained, sample.rollout_logprobs, np.float32("nan")),
        advantages=sample.advantages,
        policy_versions=np.where(trained, sample.policy_versions, np.int32(-1)),
        loss_weight=sample.loss_weight,
        reward=sample.reward,
        session_id=sample.session_id,
        group_id=group_name(sample.group_id, sample.session_id),
    )


def read(
    token_ids: ArrayLike,
    mask: ArrayLike,
    logprobs: ArrayLike,
    advantages: ArrayLike | None = None,
    versions: ArrayLike | None = None,
    carried: Mapping[str, Any] | None = None,
) -> Kept:
    """A row from a trainer's arrays of one length L; `carried`: the other fields of `Kept`, by their names here."""
    loss_mask = np.asarray(mask).astype(np.uint8)
    trained = loss_mask == 1
    told = carried or {}
    return Kept(
        token_ids=np.asarray(token_ids).astype(np.int32),
        loss_mask=loss_mask,
        rollout_logprobs=np.where(trained, np.asarray(logprobs, np.float32), np.float32("nan")),
        advantages=None if advantages is None else np.asarray(advantages, np.float32),
        policy_versions=None if versions is None else np.where(trained, np.asarray(versions), -1).astype(np.int32),
        loss_weight=told.get("loss_weight"),
        reward=told.get("reward"),
        session_id=told.get("session_id"),
        group_id=told.get("group_id"),
    )


def after(prompt_length: int, response: Sequence[Any] | NDArray[Any]) -> NDArray[Any]:
    """A response's values `[R]` in a whole row: zeros stand before it, `[P + R]`."""
    values = np.asarray(response)
    return np.concatenate([np.zeros(prompt_length, values.dtype), values])
