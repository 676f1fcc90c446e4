"""Running a job beside a proxy of its own, until it is done, has enough, or is broken off."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import msgspec

from polarproxy.cli.cluster import RayExecutor, Setup, check_reach, start_nodes
from polarproxy.cli.ending import ENDING
from polarproxy.cli.output import errors
from polarproxy.cli.progress import Progress
from polarproxy.cli.rollouts import RolloutService, admin_key, pools_for, served
from polarproxy.cli.runner import running_proxy
from polarproxy.errors import BadSettings, HarnessNotInstalled, StoreConflict
from polarproxy.model.plurals import counted
from polarproxy.rollout.jobs.planning import plan
from polarproxy.rollout.jobs.tally import Tally, tally
from polarproxy.settings import Settings
from polarproxy.store.database import open_database, sqlite_file
from polarproxy.store.task_rows import TaskState
from polarproxy.store.tasks import TaskStore

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from sqlalchemy import Engine

    from polarproxy.cli.cluster import ClusterNode
    from polarproxy.proxy.parts import Parts
    from polarproxy.rollout.jobs.dataset import GivenTask
    from polarproxy.rollout.jobs.job import Job
    from polarproxy.rollout.service.runner import Finished
    from polarproxy.store.task_rows import NewTask

_AT_ONCE = 200
"""Tasks that are submitted in one transaction."""
_ALL = 1_000_000


@dataclass(frozen=True, slots=True)
class Place:
    """A job, its tasks, and where it works."""

    job: Job
    tasks: list[GivenTask]
    folder: Path
    db: str
    recipes: str | None
    """Folder of the user's own, absolute. None: there is none."""

    @property
    def settings(self) -> Settings:
        """Of its proxy, which serves its harnesses alone. Raises `BadSettings`."""
        engine = self.job.engine
        # A database that is no file has no place beside it, and no other proxy serves this one's sessions.
        key = None if sqlite_file(self.db) is not None else str(self.folder / "polar.key")
        own = {"db": self.db, "port": 0, "auth": "required", "harnesses": self.recipes, "key_file": key}
        try:
            return msgspec.convert(msgspec.structs.asdict(engine) | own, Settings)
        except msgspec.ValidationError as error:
            raise BadSettings(f"engine: {error}") from error


async def run_job(place: Place, nodes: Sequence[ClusterNode] | None = None) -> bool:
    """Whether it came to its end. Raises `BadSettings` for a job that cannot be run, or is another one than it was.

    `nodes`: those of a Ray cluster, which run the rollouts. None: this process does.
    """
    host = place.settings.host if nodes is None else check_reach(nodes, place.db)
    async with running_proxy(replace(place.settings, host=host)) as (base, parts):
        engine = open_database(place.db)
        try:
            run = _Run(place, parts, engine, base)
            if nodes is None:
                return await run.run()
            spread = await run.spread(place, nodes, base)
            try:
                return await run.run()
            finally:
                await spread.close()
        finally:
            engine.dispose()


class _Run:
    def __init__(self, place: Place, parts: Parts, engine: Engine, base: str) -> None:
        self._job, self._tasks, self._parts = place.job, place.tasks, parts
        self._store = TaskStore(engine)
        self._tally: Tally = tally(self._store.of_job(place.job.name))
        self._service = RolloutService(
            parts, engine, base, job=place.job.name, rollouts=place.job.run.rollouts, watch=self._ended
        )
        self._progress: Progress | None = None
        self._enough = asyncio.Event()
        self._stopped = False

    async def spread(self, place: Place, nodes: Sequence[ClusterNode], base: str) -> RayExecutor:
        """Lets the nodes of a cluster run the rollouts, until they are closed."""
        model, context = await served(self._parts)
        setup = Setup(
            proxy=base,
            admin_key=admin_key(self._parts),
            db=place.db,
            runtime=place.settings.runtime,
            recipes=place.recipes,
            model=model,
            context=context,
            pools=pools_for(self._job.run.rollouts),
        )
        actors = await asyncio.to_thread(start_nodes, nodes, setup)
        executor = RayExecutor(actors, setup, self._service.gateway)
        self._service.spread(executor)
        errors.print(
            f"{counted(len(actors), 'node')}, with {counted(self._job.run.rollouts, 'rollout')} each", markup=False
        )
        return executor

    async def run(self) -> bool:
        job, service = self._job, self._service
        planned = plan(job, self._tasks, service.workshop.check)
        await asyncio.to_thread(self._submit, planned)
        async with service.open():
            await self._look_for_engine()
            await self._install()
            wanted = sum(one.rollouts for one in planned)
            self._progress = Progress(self._tally, wanted, job.target, lambda: service.runner.active)
            if self._tally.attempted:
                errors.print(f"going on with job {job.name}: {self._progress.line()}", markup=False)
            self._look()
            with self._progress.shown():
                await self._work()
            errors.print(self._progress.line(), markup=False)
        return not self._stopped

    def _submit(self, planned: list[NewTask]) -> None:
        try:
            for start in range(0, len(planned), _AT_ONCE):
                self._store.submit(planned[start : start + _AT_ONCE])
        except StoreConflict as error:
            raise BadSettings(
                f"job {self._job.name} was begun with other tasks or settings ({error}); give the changed one another name"
            ) from error

    async def _look_for_engine(self) -> None:
        """Raises `BadSettings` when none can be reached: every rollout would fail, and be done with."""
        fleet = self._parts.fleet
        await fleet.acquaint()
        away = [member for member in fleet.members if member.known is None]
        if len(away) < len(fleet.members):
            return
        for member in away:
            await member.check()
        if all(member.trouble is not None for member in away):
            raise BadSettings(f"{away[0].trouble}; start the engine, or name another with --upstream")

    async def _install(self) -> None:
        for name in self._job.run.harnesses:
            try:
                await self._service.workshop.installed(name)
            except HarnessNotInstalled as error:
                raise BadSettings(f"harness {name}: {error}") from error

    async def _work(self) -> None:
        loop, runner = asyncio.get_running_loop(), self._service.runner
        working = asyncio.create_task(runner.run(until_done=True))
        skipping = asyncio.create_task(self._skip_rest())

        def stop() -> None:
            # Once: who is impatient must not break off the clearing up, which lasts as long as the loop.
            if not self._stopped and not working.done():
                self._stopped = True
                working.cancel()
                errors.print("stopping what runs")

        for number in ENDING:
            loop.add_signal_handler(number, stop)
        try:
            await asyncio.wait((working,))
            if not working.cancelled():
                working.result()
        finally:
            skipping.cancel()
            await asyncio.gather(skipping, return_exceptions=True)
        if self._stopped:
            errors.print("broken off; the same command goes on from here")

    async def _skip_rest(self) -> None:
        """Once enough is accepted, nothing else is wanted."""
        await self._enough.wait()
        for task in await asyncio.to_thread(self._store.tasks, job=self._job.name, state=TaskState.OPEN, limit=_ALL):
            await asyncio.to_thread(self._store.cancel, task.task_id)
        self._service.runner.wake()

    def _ended(self, finished: Finished) -> None:
        self._tally.add(finished.outcome)
        self._look()
        if self._progress is not None:
            self._progress.note()

    def _look(self) -> None:
        if self._job.target is not None and self._tally.usable >= self._job.target:
            self._enough.set()
