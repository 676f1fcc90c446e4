"""Every trainer's format, there and back: the same ids, masks, logprobs and advantages, and what else it has room for.

`ROOM` is the table of docs/reference/exports.md: which of our fields come back from which format.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings

from polarproxy.batch.sample import Sample
from polarproxy.export.trainers.areal import from_areal, to_areal
from polarproxy.export.trainers.kept import Kept, kept
from polarproxy.export.trainers.nemo_gym import from_nemo_gym, to_nemo_gym
from polarproxy.export.trainers.nemo_rl import from_nemo_rl, from_nemo_rl_train, to_nemo_rl, to_nemo_rl_train
from polarproxy.export.trainers.openrlhf import (
    from_openrlhf,
    from_openrlhf_agent,
    to_openrlhf,
    to_openrlhf_agent,
)
from polarproxy.export.trainers.prime_rl import TrainingSample, from_prime_rl, to_prime_rl
from polarproxy.export.trainers.skyrl import from_skyrl, generator_output, to_skyrl
from polarproxy.export.trainers.slime import from_slime, to_slime
from polarproxy.export.trainers.tinker import from_tinker, to_tinker
from polarproxy.export.trainers.trl import from_trl, to_trl
from polarproxy.export.trainers.verl import from_verl, from_verl_rows, to_verl, to_verl_rows
from tests.export.trainers.rows import exports

ALWAYS = ("token_ids", "loss_mask", "rollout_logprobs")
EVERYTHING = {"advantages", "loss_weight", "reward", "session_id", "group_id"}


@dataclass(frozen=True)
class Trainer:
    name: str
    back: Callable[[list[Sample]], list[Kept]]
    room: set[str]
    rewarded: bool = False
    """Knows no row without a reward."""


def through_json(rows: Any) -> Any:
    return msgspec.json.decode(msgspec.json.encode(list(rows)))


def prime(samples: list[Sample]) -> list[Kept]:
    return from_prime_rl(
        msgspec.msgpack.decode(msgspec.msgpack.encode(list(to_prime_rl(samples))), type=list[TrainingSample])
    )


TRAINERS = (
    Trainer("verl-dataproto", lambda rows: from_verl(to_verl(rows, pad_token_id=7)), EVERYTHING),
    Trainer("verl-tensordict", lambda rows: from_verl_rows(to_verl_rows(rows)), EVERYTHING),
    Trainer("trl", lambda rows: from_trl(to_trl(rows)), EVERYTHING),
    Trainer("slime", lambda rows: from_slime(through_json(to_slime(rows))), EVERYTHING),
    Trainer("prime-rl", prime, {"advantages", "loss_weight"}),
    Trainer("nemo-rl-messages", lambda rows: from_nemo_rl(to_nemo_rl(rows)), EVERYTHING),
    Trainer("nemo-rl-train", lambda rows: from_nemo_rl_train(to_nemo_rl_train(rows, 7)), {"advantages", "loss_weight"}),
    Trainer("nemo-gym", lambda rows: from_nemo_gym(through_json(to_nemo_gym(rows))), EVERYTHING | {"policy_versions"}),
    Trainer(
        "skyrl", lambda rows: from_skyrl(generator_output(through_json(to_skyrl(rows)))), EVERYTHING, rewarded=True
    ),
    Trainer("openrlhf-experience", lambda rows: from_openrlhf(to_openrlhf(rows)), EVERYTHING - {"session_id"}),
    Trainer(
        "openrlhf-agent",
        lambda rows: from_openrlhf_agent(through_json(to_openrlhf_agent(rows))),
        EVERYTHING - {"session_id", "advantages"},
    ),
    Trainer("tinker", lambda rows: from_tinker(through_json(to_tinker(rows))), EVERYTHING),
    Trainer(
        "areal",
        lambda rows: from_areal(to_areal(rows)),
        {"advantages", "loss_weight", "reward", "policy_versions"},
        rewarded=True,
    ),
)


def expected(trainer: Trainer, samples: list[Sample]) -> list[Kept]:
    """What a format must bring back: what it has room for, and nothing in the place of the rest."""
    every = [kept(sample) for sample in samples]
    absent = {field.name for field in fields(Kept)} - {*ALWAYS} - trainer.room
    if trainer.name.startswith("verl"):
        # A tensor of all rows or of none.
        absent |= {"reward"} if any(one.reward is None for one in every) else set()
    cut = [_until_trained(one) if trainer.name == "nemo-gym" else one for one in every]
    nothing: dict[str, Any] = dict.fromkeys(absent)
    return [replace(one, **nothing) for one in cut]


def _until_trained(one: Kept) -> Kept:
    end = int(np.flatnonzero(one.loss_mask)[-1]) + 1
    values = {field.name: getattr(one, field.name) for field in fields(Kept)}
    cut: dict[str, Any] = {name: value[:end] for name, value in values.items() if isinstance(value, np.ndarray)}
    return replace(one, **cut)


def same(one: Kept, other: Kept) -> bool:
    for field in fields(Kept):
        left, right = getattr(one, field.name), getattr(other, field.name)
        if isinstance(left, np.ndarray):
            if (
                not isinstance(right, np.ndarray)
                or left.dtype != right.dtype
                or not np.array_equal(left, right, equal_nan=left.dtype == np.float32)
            ):
                return False
        elif left != right:
            return False
    return True


@pytest.mark.parametrize("trainer", TRAINERS, ids=lambda trainer: trainer.name)
def test_there_and_back(trainer: Trainer) -> None:
    @settings(max_examples=25, deadline=None)
    @given(exports(rewarded=trainer.rewarded))
    def check(samples: list[Sample]) -> None:
        back = trainer.back(samples)
        assert len(back) == len(samples)
        for one, wanted in zip(back, expected(trainer, samples), strict=True):
            assert same(one, wanted), (one, wanted)

    check()
