"""A job as its TOML file says it, read strictly."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from polarproxy.errors import BadSettings, InvalidValue
from polarproxy.model.explaining import explained
from polarproxy.rollout.evaluators.asked import Asked  # noqa: TC001  (msgspec reads it)
from polarproxy.rollout.jobs.dataset import GivenTask
from polarproxy.rollout.service.request import Keep, RuntimeAsked


class Tasks(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Where the tasks come from."""

    path: str
    """A .jsonl or .parquet file, a folder of such files, or a folder with a folder for each task; beside the job's file."""
    limit: int | None = None
    """Only so many of them, the first ones. None: all."""
    columns: dict[str, str] = {}
    """Names of columns that are called otherwise there: `instruction = "problem_statement"`."""


class Run(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """How each task is run."""

    harnesses: tuple[str, ...]
    recipes: str | None = None
    """A folder of recipes of your own, beside the job's file, which come before ours. None: as the settings say."""
    models: tuple[str, ...] = ()
    """Empty: the model that the engine serves."""
    samples: int = 1
    enough: int | None = None
    """Usable rollouts of a task after which the rest is left out. None: all are run."""
    rollouts: int = 4
    """Harnesses that run at once."""
    timeout_s: float = 1800.0
    judge_unfinished: bool = False
    runtime: str | RuntimeAsked = RuntimeAsked()
    metadata: dict[str, str] = {}


class Prices(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Of a million tokens, in any currency."""

    prompt: float = 0.0
    completion: float = 0.0


class Engine(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Who samples; as the settings of the same names."""

    upstream: str = "http://127.0.0.1:8000"
    upstream_key: str | None = None
    engine: str = "auto"
    prompts: str = "template"


class Export(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """What is written when all is done."""

    file: str = "samples.parquet"
    """In the job's folder; its suffix says the format."""
    advantage: str = "grpo"


class Job(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """One job."""

    name: str
    tasks: Tasks
    run: Run
    out: str | None = None
    """Folder of the results, beside the job's file. None: the job's name."""
    db: str | None = None
    """None: `polar.db` in that folder."""
    engine: Engine = Engine()
    sampling: dict[str, int | float] = {}
    evaluator: Asked | tuple[Asked, ...] = ()
    reward: dict[str, Any] | None = None
    keep: Keep = Keep()
    target: int | None = None
    """Usable rollouts after which the job is done. None: all tasks are run."""
    prices: Prices = Prices()
    export: Export = Export()


def read_job(path: Path) -> Job:
    """Raises `BadSettings` with what is wrong, and where."""
    try:
        values = tomllib.loads(path.read_text())
    except OSError as error:
        raise BadSettings(f"{path} cannot be read: {error.strerror}") from error
    except RecursionError as error:
        raise BadSettings(f"{path} is nested too deeply") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadSettings(f"{path} is not TOML: {error}") from error
    try:
        job = msgspec.convert(values, Job)
        _check(job)
    except (msgspec.ValidationError, InvalidValue) as error:
        raise BadSettings(f"{path}: {explained(error, Job)}") from error
    return job


def _check(job: Job) -> None:
    if not job.name.strip() or "/" in job.name or job.name.startswith(".") or not job.name.isprintable():
        raise InvalidValue(f"name is {job.name!r}; it names a folder")
    if Path(job.export.file).name != job.export.file or not job.export.file.isprintable():
        raise InvalidValue(f"export.file is {job.export.file!r}; it names a file in the job's folder")
    if not job.run.harnesses:
        raise InvalidValue("run.harnesses names none")
    for what, names in (("run.harnesses", job.run.harnesses), ("run.models", job.run.models)):
        if len(set(names)) != len(names):
            raise InvalidValue(f"{what} names one twice: {', '.join(names)}")
    counts = (("run.samples", job.run.samples), ("run.rollouts", job.run.rollouts), ("target", job.target))
    for what, count in (*counts, ("tasks.limit", job.tasks.limit)):
        if count is not None and count < 1:
            raise InvalidValue(f"{what} is {count}; it must be at least 1")
    for price in (job.prices.prompt, job.prices.completion):
        if not (np.isfinite(price) and price >= 0):
            raise InvalidValue(f"a price is {price}")
    for name in job.tasks.columns:
        if name not in GivenTask.__struct_fields__:
            raise InvalidValue(f"tasks.columns has {name!r}; a task has {', '.join(GivenTask.__struct_fields__)}")
