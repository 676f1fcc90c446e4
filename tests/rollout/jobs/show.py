"""The katas with real harnesses over a scripted model, killed in the middle, and whether all came out right.

    python -m tests.rollout.jobs.show [--katas 20] [--samples 4] [--rollouts 4] [--runtime local] [--kill] HARNESS…

Needs the packages of the harnesses, which are installed into the cache. Exit code 1 when a reward is not that of the solution
that its session shows, a group is not whole, anything was run twice, or a process or a folder is left.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq

from polarproxy.model import SessionStatus
from polarproxy.rollout.scripted.engine import ScriptedEngine
from polarproxy.store.database import open_database
from polarproxy.store.repository import Repository
from polarproxy.store.task_rows import RolloutState
from polarproxy.store.tasks import TaskStore
from tests.rollout.jobs.katas import KATAS, Model, is_right, write_tasks
from tests.rollout.left import folders, processes

if TYPE_CHECKING:
    from sqlalchemy import Engine

_ENDED_S = 5.0
"""What is killed by its keeper is gone in moments, but for a machine that is busy with other things."""


@dataclass(frozen=True)
class Show:
    folder: Path
    harnesses: tuple[str, ...]
    katas: int
    samples: int
    rollouts: int
    runtime: str
    more: str = ""
    """More of the command line."""

    @property
    def wanted(self) -> int:
        return self.katas * self.samples * len(self.harnesses)

    @property
    def temporary(self) -> Path:
        """The temporary folder of all that it starts."""
        return self.folder / "tmp"

    @property
    def db(self) -> str:
        return f"sqlite:///{self.folder}/katas/polar.db"

    def write(self) -> None:
        self.temporary.mkdir()
        write_tasks(self.folder / "tasks.jsonl", KATAS[: self.katas])
        names = ", ".join(f'"{name}"' for name in self.harnesses)
        (self.folder / "job.toml").write_text(
            f'name = "katas"\n[tasks]\npath = "tasks.jsonl"\n[run]\nharnesses = [{names}]\nsamples = {self.samples}\n'
            f'recipes = "{Path(__file__).with_name("recipes")}"\n'
            f'rollouts = {self.rollouts}\nruntime = "{self.runtime}"\ntimeout_s = 120.0\n'
            f'[sampling]\ntemperature = 0.8\n[evaluator]\nkind = "tests"\nrunner = "unittest"\nleast = 2\n'
            f'python = "{sys.executable if self.runtime == "local" else "python3"}"\n[engine]\nengine = "vllm"\n'
        )

    async def generate(self, url: str, kill_at: int | None = None) -> int:
        """Runs the command; with `kill_at` it is killed once so many rollouts have ended. Its exit code."""
        command = [sys.executable, "-m", "polarproxy", "generate", str(self.folder / "job.toml"), "--upstream", url]
        env = os.environ | {"TMPDIR": str(self.temporary)}
        process = await asyncio.create_subprocess_exec(*command, *self.more.split(), cwd=self.folder, env=env)
        while kill_at is not None and process.returncode is None and self.ended() < kill_at:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
        if kill_at is not None and process.returncode is None:
            os.kill(process.pid, signal.SIGKILL)
        return await process.wait()

    def ended(self) -> int:
        if not (self.folder / "katas" / "polar.db").exists():
            return 0
        engine = open_database(self.db)
        try:
            return sum(one.state is RolloutState.DONE for one in TaskStore(engine).of_job("katas"))
        # The database may be being made just now.
        except Exception:  # noqa: BLE001
            return 0
        finally:
            engine.dispose()


def faults(show: Show, done_before: dict[tuple[str, int], str | None]) -> list[str]:
    """What is not as it should be after the job."""
    engine = open_database(show.db)
    try:
        return [*_faults(show, engine, done_before), *_left(show)]
    finally:
        engine.dispose()


def _left(show: Show) -> list[str]:
    running, lying = processes(show.temporary), folders(show.temporary)
    return [*(f"still running: {line}" for line in running), *(f"still there: {name}" for name in lying)]


def _faults(show: Show, engine: Engine, done_before: dict[tuple[str, int], str | None]) -> list[str]:
    repository, found = Repository(engine), []
    rollouts = TaskStore(engine).of_job("katas")
    if len(rollouts) != show.wanted or any(one.state is not RolloutState.DONE for one in rollouts):
        found.append(f"{len(rollouts)} rollouts, not {show.wanted}, or not all of them done")
    for one in rollouts:
        assert one.session_id is not None
        if done_before.get((one.task_id, one.number), one.session_id) != one.session_id:
            found.append(f"{one.session_id} was run again though it was done")
        if one.outcome is None or one.outcome.status is not SessionStatus.COMPLETED:
            found.append(f"{one.session_id}: {one.outcome}")
            continue
        session = repository.session(one.session_id)
        calls = repository.calls(one.session_id)
        right = is_right([call.call.request_body for call in calls])
        reward = None if session.reward is None else session.reward.value
        if session.status is not SessionStatus.COMPLETED or reward != float(right):
            found.append(f"{one.session_id}: {session.status}, reward {reward}, right is {right}")
        if any(call.call.sampling.temperature != 0.8 for call in calls):
            found.append(f"{one.session_id} was not sampled as the job says")
    sessions = [entry.session for entry in repository.sessions()]
    rewarded = [one for one in sessions if one.reward is not None]
    groups = Counter(one.group_id for one in rewarded)
    if len(rewarded) != show.wanted or set(groups.values()) != {show.samples}:
        found.append(f"{len(rewarded)} rewarded sessions in groups of {sorted(set(groups.values()))}")
    broken = [one for one in sessions if one.reward is None]
    if any(one.status is not SessionStatus.INFRA_ERROR for one in broken):
        found.append(f"sessions without a reward: {Counter(str(one.status) for one in broken)}")
    exported = set(pq.read_table(show.folder / "katas" / "samples.parquet")["session_id"].to_pylist())
    if exported != {one.session_id for one in rewarded}:
        found.append(f"{len(exported)} sessions were exported, not {len(rewarded)}")
    return found


def done(show: Show) -> dict[tuple[str, int], str | None]:
    """The sessions of rollouts that have ended."""
    engine = open_database(show.db)
    try:
        ended = TaskStore(engine).of_job("katas")
        return {(one.task_id, one.number): one.session_id for one in ended if one.state is RolloutState.DONE}
    finally:
        engine.dispose()


async def play(show: Show, *, kill: bool) -> list[str]:
    """Faults of the whole; empty: none."""
    show.write()
    async with ScriptedEngine(Model(), context=1_000_000) as engine:
        before: dict[tuple[str, int], str | None] = {}
        orphans: list[str] = []
        if kill:
            code = await show.generate(engine.url, show.wanted // 3)
            before = done(show)
            await asyncio.sleep(_ENDED_S)
            print(f"killed (exit code {code}) after {len(before)} of {show.wanted} rollouts", flush=True)
            orphans = [f"still running after the kill: {line}" for line in processes(show.temporary)]
        code = await show.generate(engine.url)
    return [*([f"exit code {code}"] if code else []), *orphans, *faults(show, before)]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.rollout.jobs.show", description=__doc__.partition("\n")[0])
    parser.add_argument("harnesses", nargs="+")
    parser.add_argument("--katas", type=int, default=len(KATAS))
    parser.add_argument("--samples", type=int, default=4)
    parser.add_argument("--rollouts", type=int, default=4)
    parser.add_argument("--runtime", default="local")
    parser.add_argument("--kill", action="store_true")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="polarproxy-katas-") as folder:
        show = Show(Path(folder), tuple(asked.harnesses), asked.katas, asked.samples, asked.rollouts, asked.runtime)
        started = time.monotonic()
        found = asyncio.run(play(show, kill=asked.kill))
        print(
            f"{show.wanted} rollouts in {time.monotonic() - started:.0f} s",
            *(found or ["all as it should be"]),
            sep="\n",
        )
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
