"""A service over a real proxy, real runtimes and a scripted engine; the harness is a small program of Python's own."""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from polarproxy.cli.records import StoreRecords
from polarproxy.model import SessionStatus
from polarproxy.rollout.runtimes.budget import Budget
from polarproxy.rollout.runtimes.opening import Runtimes
from polarproxy.rollout.runtimes.protocol import Ended, Runtime, StoppedBy
from polarproxy.rollout.service.gateway import Gateway
from polarproxy.rollout.service.lifecycle import Lifecycle
from polarproxy.rollout.service.pauses import Pauses
from polarproxy.rollout.service.ports import Order, Pools
from polarproxy.rollout.service.request import TaskRequest, check_request
from polarproxy.rollout.service.runner import Finished, Runner
from polarproxy.rollout.service.verdict import Verdict
from polarproxy.store.ids import new_id
from polarproxy.store.ownership import Ownership
from polarproxy.store.task_rows import NewTask, Rollout
from polarproxy.store.tasks import TaskStore
from tests.proxy.rig import Rig, Scripted, rig

ASK = """import json, os, sys, urllib.request
def ask(text):
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": text}]}).encode()
    head = {"Authorization": "Bearer " + os.environ["KEY"], "Content-Type": "application/json"}
    asked = urllib.request.Request(os.environ["BASE"] + "/v1/chat/completions", body, head)
    return json.load(urllib.request.urlopen(asked))["choices"][0]["message"]["content"]
"""
"""What every instruction, which is a program, begins with."""
SIMPLE = "open('said.txt', 'w').write(ask('hi'))\n"


@dataclass(frozen=True)
class End:
    ended: Ended
    status: SessionStatus
    problem: str


class Shop:
    """Runs the instruction itself, as a program."""

    def __init__(self, base: str) -> None:
        self._base, self._runtimes = base, Runtimes()
        self.started: list[Runtime] = []

    async def runtime(self, request: TaskRequest) -> Runtime:
        runtime = await self._runtimes.start("local", request.place.spec(self._base, (), request.place.source()))
        self.started.append(runtime)
        return runtime

    def left(self) -> list[str]:
        """Working copies that are still there."""
        return [one.work for one in self.started if Path(one.work).exists()]

    async def work(self, order: Order, runtime: Runtime, api_key: str, budget: Budget) -> End:
        env = {"KEY": api_key, "BASE": runtime.proxy or ""}
        program = [sys.executable, "-c", ASK + order.request.instruction]
        ended = await runtime.exec(program, env=env, budget=budget)
        if ended.stopped_by is StoppedBy.TIME:
            return End(ended, SessionStatus.TIMEOUT, "time is up")
        failed = ended.exit_code != 0 or ended.stopped_by is not None
        status = SessionStatus.AGENT_ERROR if failed else SessionStatus.COMPLETED
        return End(ended, status, ended.stderr[-200:] if failed else "")


@dataclass
class Service:
    """A proxy with a runner beside it."""

    rig: Rig
    shop: Shop
    store: TaskStore
    runner: Runner
    gateway: Gateway
    finished: list[Finished]

    def submit(self, instruction: str = SIMPLE, task_id: str | None = None, **more: Any) -> str:
        request = msgspec.convert({"instruction": instruction, "harness": "none", **more}, TaskRequest)
        check_request(request)
        name, text = task_id or new_id("t"), msgspec.json.encode(request).decode()
        new = NewTask(name, text, request.num_samples, enough=request.enough, priority=request.priority)
        self.store.submit([new])
        self.runner.wake()
        return name

    async def done(self, *task_ids: str, seconds: float = 60.0) -> list[Rollout]:
        """The rollouts of these tasks, once they are over."""
        async with asyncio.timeout(seconds):
            while any(self.store.task(one).finished_at is None for one in task_ids) or self.runner.active:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        return [rollout for one in task_ids for rollout in self.store.rollouts(one)]


class OnePlace:
    """Rollouts that are one piece: nothing of one goes on beside another in its place."""

    def __init__(self, lifecycle: Lifecycle, places: int) -> None:
        self._lifecycle, self.places = lifecycle, places

    async def run(self, order: Order) -> Verdict:
        return await self._lifecycle.run(order)


POOLS = Pools(init=2, ready=2, run=3, post=2)


@asynccontextmanager
async def service(
    folder: Path,
    script: Scripted | None = None,
    pools: Pools = POOLS,
    *,
    running: bool = True,
    one_place: int | None = None,
    **settings: Any,
) -> AsyncIterator[Service]:
    """`one_place`: so many rollouts keep their places from beginning to end. None: each stage has its own places."""
    async with rig(folder, script, **settings) as made, Gateway(made.base, made.parts.signer.admin_key) as gateway:
        engine = made.parts.repository._engine
        shop, pauses, finished = Shop(made.base), Pauses(), list[Finished]()
        records = StoreRecords(made.parts.repository)
        lifecycle = Lifecycle(shop, gateway, records, pauses, pools)
        store = TaskStore(engine)
        executor = lifecycle if one_place is None else OnePlace(lifecycle, one_place)
        runner = Runner(store, executor, gateway, records, Ownership(engine, ""), "", finished.append)
        working = [asyncio.create_task(runner.run())] if running else []
        working.append(asyncio.create_task(pauses.follow(gateway.paused)))
        try:
            yield Service(made, shop, store, runner, gateway, finished)
        finally:
            for one in working:
                one.cancel()
            await asyncio.gather(*working, return_exceptions=True)


async def until(condition: Callable[[], object], seconds: float = 30.0) -> None:
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.02)


def gone(pid: int) -> bool:
    with suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    return True
