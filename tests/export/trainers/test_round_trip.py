"""Every trainer's files, there and back: the same ids, masks, logprobs and advantages, and what else they have room for.

The table of docs/reference/trainers.md is checked against `TRAINERS`: which of our fields come back from which format.
"""

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from polarproxy.batch.sample import Sample
from polarproxy.export.files import format_named
from polarproxy.export.trainers.areal import from_areal
from polarproxy.export.trainers.kept import Kept, kept
from polarproxy.export.trainers.nemo_gym import from_nemo_gym
from polarproxy.export.trainers.nemo_rl import from_nemo_rl, from_nemo_rl_train
from polarproxy.export.trainers.openrlhf import from_openrlhf, from_openrlhf_agent
from polarproxy.export.trainers.prime_rl import TrainingBatch, from_prime_rl
from polarproxy.export.trainers.skyrl import from_skyrl, generator_output
from polarproxy.export.trainers.slime import from_slime
from polarproxy.export.trainers.tinker import from_tinker
from polarproxy.export.trainers.trl import from_trl
from polarproxy.export.trainers.verl import Batch, from_verl, from_verl_rows
from tests.export.exported import context, taken
from tests.export.trainers.rows import exports

ALWAYS = ("token_ids", "loss_mask", "rollout_logprobs")
EVERYTHING = {"advantages", "loss_weight", "reward", "session_id", "group_id"}


@dataclass(frozen=True)
class Trainer:
    """How the rows of a format are read back, and which fields of `Kept` it has room for beside `ALWAYS`."""

    format: str
    form: str | None
    read: Callable[[Path], list[Kept]]
    room: set[str]
    rewarded: bool = False
    """Knows no row without a reward."""

    @property
    def name(self) -> str:
        return self.format if self.form is None else f"{self.format}-{self.form}"


def lines(path: Path) -> list[Any]:
    return [msgspec.json.decode(line) for line in path.read_bytes().splitlines()]


def saved(path: Path) -> Any:
    """What torch saved, tensors as arrays."""
    import torch

    def arrays(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return value.numpy()
        if isinstance(value, dict):
            return {name: arrays(one) for name, one in value.items()}
        return [arrays(one) for one in value] if isinstance(value, list) else value

    return arrays(torch.load(path, weights_only=True))


TRAINERS = (
    Trainer("verl", "dataproto", lambda path: from_verl(Batch(**saved(path))), EVERYTHING),
    Trainer("verl", "tensordict", lambda path: from_verl_rows(saved(path)), EVERYTHING),
    Trainer("trl", None, lambda path: from_trl(pq.read_table(path).to_pylist()), EVERYTHING),
    Trainer("slime", None, lambda path: from_slime(saved(path)["samples"]), EVERYTHING),
    Trainer(
        "prime-rl",
        None,
        lambda path: from_prime_rl(msgspec.msgpack.decode(path.read_bytes(), type=TrainingBatch).examples),
        {"advantages", "loss_weight"},
    ),
    Trainer("nemo-rl", "messages", lambda path: from_nemo_rl(saved(path)), EVERYTHING),
    Trainer("nemo-rl", "train", lambda path: from_nemo_rl_train(saved(path)), {"advantages", "loss_weight"}),
    Trainer("nemo-gym", None, lambda path: from_nemo_gym(lines(path)), EVERYTHING | {"policy_versions"}),
    Trainer("skyrl", None, lambda path: from_skyrl(generator_output(lines(path))), EVERYTHING, rewarded=True),
    Trainer("openrlhf", "experience", lambda path: from_openrlhf(saved(path)), EVERYTHING - {"session_id"}),
    Trainer(
        "openrlhf",
        "agent",
        lambda path: from_openrlhf_agent(saved(path)),
        EVERYTHING - {"session_id", "advantages"},
    ),
    Trainer("tinker", None, lambda path: from_tinker(lines(path)), EVERYTHING),
    Trainer(
        "areal",
        None,
        lambda path: from_areal(saved(path)),
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


def param(trainer: Trainer) -> Any:
    missing = any(importlib.util.find_spec(module) is None for module in format_named(trainer.format).modules)
    return pytest.param(trainer, id=trainer.name, marks=pytest.mark.skipif(missing, reason="needs torch"))


@pytest.mark.parametrize("trainer", [param(trainer) for trainer in TRAINERS])
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=15, deadline=None)
@given(data=st.data())
def test_there_and_back(tmp_path: Path, trainer: Trainer, data: st.DataObject) -> None:
    samples = data.draw(exports(rewarded=trainer.rewarded))
    path = tmp_path / "rows"
    format_named(trainer.format).write(path, taken(samples), context(trainer.form))
    back = trainer.read(path)
    assert len(back) == len(samples)
    for one, wanted in zip(back, expected(trainer, samples), strict=True):
        assert same(one, wanted), (one, wanted)
