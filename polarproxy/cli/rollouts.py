"""The task service over a proxy of this process: routes, runner and callbacks, put together."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from polarproxy.cli.recipes import harness_cache
from polarproxy.cli.records import StoreRecords
from polarproxy.errors import NotOffered
from polarproxy.rollout.recipes import find_harnesses
from polarproxy.rollout.service.callbacks import Callbacks
from polarproxy.rollout.service.gateway import Gateway
from polarproxy.rollout.service.lifecycle import Lifecycle
from polarproxy.rollout.service.pauses import Pauses
from polarproxy.rollout.service.ports import Pools
from polarproxy.rollout.service.routes import TaskRoutes
from polarproxy.rollout.service.runner import Runner
from polarproxy.rollout.service.workshop import RecipeWorkshop
from polarproxy.store.ownership import Ownership
from polarproxy.store.task_rows import SERVICE
from polarproxy.store.tasks import TaskStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from aiohttp import web
    from sqlalchemy import Engine

    from polarproxy.proxy.control_app import Route
    from polarproxy.proxy.parts import Parts
    from polarproxy.rollout.service.ports import Executor
    from polarproxy.rollout.service.runner import Finished

_CONTEXT = 131_072


async def _none(_http: web.Request) -> web.StreamResponse:
    raise NotOffered("this proxy runs no tasks; start it with --rollouts N")


NO_TASKS: tuple[Route, ...] = tuple(
    (method, path, _none)
    for method, path in (
        ("*", "/api/tasks"),
        ("*", "/api/tasks/{rest:.*}"),
        ("GET", "/api/events"),
    )
)
"""What a proxy without a task service answers."""


def pools_for(rollouts: int) -> Pools:
    """The places of each stage, for so many harnesses at once."""
    half = max(1, rollouts // 2)
    return Pools(init=half, ready=half, run=rollouts, post=rollouts)


def admin_key(parts: Parts) -> str:
    """Of the control routes."""
    return parts.settings.admin_key or parts.signer.admin_key


class RolloutService:
    """Runs the tasks of a job beside a proxy of this process."""

    def __init__(
        self,
        parts: Parts,
        engine: Engine,
        base: str,
        job: str = SERVICE,
        rollouts: int | None = None,
        watch: Callable[[Finished], None] = lambda _: None,
    ) -> None:
        """`rollouts` None: as many at once as the settings say."""
        settings = parts.settings
        pools = pools_for(settings.rollouts if rollouts is None else rollouts)
        own = None if settings.harnesses is None else Path(settings.harnesses)
        self.store = TaskStore(engine)
        self.workshop = RecipeWorkshop(
            base, find_harnesses(own), harness_cache(), settings.runtime, partial(served, parts)
        )
        self.gateway, self._pauses = Gateway(base, admin_key(parts)), Pauses()
        self.records = records = StoreRecords(parts.repository)
        lifecycle = Lifecycle(self.workshop, self.gateway, records, self._pauses, pools)
        self._over = partial(
            Runner,
            self.store,
            gateway=self.gateway,
            records=records,
            ownership=Ownership(engine, job),
            job=job,
            watch=watch,
        )
        self.runner = self._over(executor=lifecycle)
        self._callbacks = Callbacks(self.store, admin_key(parts))
        self._routes = TaskRoutes(self.store, self.workshop.check, lambda: self.runner.wake(), parts.ending)

    def spread(self, executor: Executor) -> None:
        """Rollouts are run by others; before anything runs."""
        self.runner = self._over(executor=executor)

    @property
    def routes(self) -> tuple[Route, ...]:
        """For the proxy to serve."""
        return self._routes.all

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Everything that rollouts need, but for the runner."""
        with self.workshop:
            async with self.gateway:
                following = asyncio.create_task(self._pauses.follow(self.gateway.paused))
                try:
                    yield
                finally:
                    await _cancelled(following)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Runs tasks until the block ends; what runs then is broken off and waits for the next start."""
        async with self.open():
            working = [asyncio.create_task(self.runner.run()), asyncio.create_task(self._callbacks.run())]
            try:
                yield
            finally:
                await _cancelled(*working)


async def _cancelled(*tasks: asyncio.Task[None]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def served(parts: Parts) -> tuple[str, int]:
    """The first model that the engine serves, and its context; any name will do when it does not say."""
    facts = await parts.fleet.facts()
    return facts.model or "model", facts.max_model_len or _CONTEXT
