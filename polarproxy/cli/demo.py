"""`polarproxy demo`: the whole path on this machine, from a harness's calls to training rows."""

from __future__ import annotations

import asyncio
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import aiohttp
import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from polarproxy.cli.accounts import print_account
from polarproxy.cli.ending import run
from polarproxy.cli.output import console
from polarproxy.cli.recipes import harness_cache, known_harnesses, known_recipes
from polarproxy.cli.runner import running_proxy
from polarproxy.errors import BadSettings
from polarproxy.export.collect import Collection
from polarproxy.export.files import format_of
from polarproxy.export.format import Context
from polarproxy.export.options import Options
from polarproxy.export.running import write_file, write_report
from polarproxy.model import SessionStatus
from polarproxy.rollout.calculator import TASKS, CalculatorTask, total, verify
from polarproxy.rollout.demo import model_path
from polarproxy.rollout.embedded import EmbeddedEngine
from polarproxy.rollout.installing import Installed, install
from polarproxy.rollout.running import Access, run_harness
from polarproxy.rollout.runtimes.budget import Budget
from polarproxy.rollout.runtimes.opening import Runtimes
from polarproxy.rollout.runtimes.protocol import Spec
from polarproxy.settings import Settings
from polarproxy.store.database import open_database
from polarproxy.store.repository import Repository

_ALIAS = "demo"
_TIMEOUT_S = 120.0


@dataclass(frozen=True, slots=True)
class _Run:
    """One sample of one task, to be run against a proxy."""

    task: CalculatorTask
    harness: Installed
    base: str
    runtimes: Runtimes


def demo(
    out: Annotated[Path | None, typer.Option(help="Folder for the results; default: a new ./polar-demo.")] = None,
    model: Annotated[
        Path | None,
        typer.Option(
            exists=True, dir_okay=False, help="A GGUF file to use instead of the small model that comes along."
        ),
    ] = None,
    samples: Annotated[int, typer.Option(min=1, help="Rollouts of each task.")] = 8,
    concurrency: Annotated[int, typer.Option(min=1, help="Harnesses that run at once.")] = 4,
) -> None:
    """Run a small agent on 8 tasks against a real model, record it, and turn it into GRPO training rows.

    Starts an embedded engine and the proxy on free loopback ports; nothing is downloaded and nothing else is needed. Leaves
    polar.db, samples.parquet, samples.jsonl and report.json in the folder.
    """
    folder = _make_folder(out)
    settings = Settings(port=0, db=f"sqlite:///{folder / 'polar.db'}", engine="llamacpp")
    started = time.monotonic()
    console.print(f"results go to [bold]{folder}[/bold]")
    with EmbeddedEngine(model or model_path(), alias=_ALIAS, slots=concurrency) as engine:
        console.print(f"embedded engine: llama.cpp with {(model or model_path()).name}")
        run(_rollouts(settings, engine.base_url, samples, concurrency))
    _export(settings, folder)
    console.print(f"done in {time.monotonic() - started:.0f} s; look around with, for example:")
    console.print(f"  {sys.argv[0]} sessions list --db {settings.db}")
    console.print(f"  {sys.argv[0]} trajectories show SESSION --text --db {settings.db}")


def _make_folder(out: Path | None) -> Path:
    """A folder without an earlier run in it; raises `BadSettings` when the wanted one has one."""
    if out is None:
        names = (f"polar-demo-{number}" if number > 1 else "polar-demo" for number in range(1, 10_000))
        out = next(path for path in map(Path, names) if not path.exists())
    elif (out / "polar.db").exists():
        raise BadSettings(f"{out} holds the results of an earlier run; choose another folder with --out")
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadSettings(f"{out} cannot be made: {error.strerror}") from error
    return out.resolve()


async def _rollouts(settings: Settings, upstream: str, samples: int, concurrency: int) -> None:
    """Every sample of every task, each harness in a process of its own."""
    settings = Settings(upstream=upstream, port=settings.port, db=settings.db, engine=settings.engine)
    gate = asyncio.Semaphore(concurrency)
    async with running_proxy(settings) as (base, _), aiohttp.ClientSession(base) as control:
        console.print(f"proxy: {base}")
        harness, runtimes = install(known_harnesses()["calculator"], harness_cache()), Runtimes()
        runs = [_Run(task, harness, base, runtimes) for task in TASKS for _ in range(samples)]
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*columns, console=console) as progress:
            bar = progress.add_task("rollouts", total=len(runs))

            async def one(run: _Run) -> None:
                async with gate:
                    await _rollout(control, run)
                progress.advance(bar)

            async with asyncio.TaskGroup() as group:
                for run in runs:
                    group.create_task(one(run))


async def _post(control: aiohttp.ClientSession, path: str, body: dict[str, Any]) -> Any:
    async with control.post(path, json=body) as answer:
        answer.raise_for_status()
        return await answer.json()


async def _rollout(control: aiohttp.ClientSession, run: _Run) -> None:
    """A session, a harness that knows nothing but its base URL, and a reward for what it answered."""
    task, recipe = run.task, run.harness.recipe
    wanted = {"task_id": task.task_id, "group_id": task.task_id, "harness": recipe.name, "model": _ALIAS}
    session = await _post(control, "/api/sessions", wanted)
    session_id = session["session_id"]
    access = Access(session_id=session_id, api_key=session["api_key"], model=_ALIAS)
    spec = Spec(programs=run.harness.programs, proxy=run.base)
    async with run.runtimes.running("local", spec) as runtime:
        outcome = await run_harness(run.harness, runtime, access, task.instruction, Budget(_TIMEOUT_S))
    await _post(control, f"/api/sessions/{session_id}/close", {"status": outcome.status})
    if outcome.status is not SessionStatus.COMPLETED:
        return
    components = verify(task, outcome.ended.stdout)
    metrics = [{"name": part.name, "value": part.value, "type": "Reward"} for part in components]
    reward = {"aggregate_reward_score": total(components), "metrics_list": metrics}
    await _post(control, f"/api/sessions/{session_id}/rewards", reward)


def _export(settings: Settings, folder: Path) -> None:
    """The same rows as Parquet and as JSONL, and the report."""
    engine = open_database(settings.db)
    collection = Collection(Repository(engine), Options(advantage="grpo"), known_recipes())
    taken = [collection.take(session) for session in collection.sessions]
    engine.dispose()
    parquet, jsonl, report = (folder / name for name in ("samples.parquet", "samples.jsonl", "report.json"))
    for path in (parquet, jsonl):
        write_file(path, format_of(path), taken, Context(collection.account))
    write_report(report, collection.account)
    print_account(collection.account, [folder / "polar.db", parquet, jsonl, report])
