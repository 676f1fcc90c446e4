"""The stages of a rollout: INIT makes its runtime, READY waits for a place, RUN is the harness, POST judges and clears up.

Each stage has its own bounded number of places, so that a slow evaluator keeps no harness from running, and runtimes are made
ready while others run. Only RUN uses up the harness's time.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from polarproxy.credit.spec import read_spec
from polarproxy.errors import JudgeFailed, ProxyRefused, RuntimeFailed
from polarproxy.model import Session, SessionStatus
from polarproxy.rollout.evaluators.asked import needs_fresh
from polarproxy.rollout.evaluators.evidence import Evidence
from polarproxy.rollout.evaluators.judged import evaluate
from polarproxy.rollout.judging import Judges
from polarproxy.rollout.runtimes.budget import Budget
from polarproxy.rollout.service.steady import undisturbed
from polarproxy.rollout.service.verdict import Verdict

if TYPE_CHECKING:
    from polarproxy.model import Reward
    from polarproxy.rollout.runtimes.protocol import Runtime
    from polarproxy.rollout.service.gateway import Gateway
    from polarproxy.rollout.service.pauses import Pauses
    from polarproxy.rollout.service.ports import HarnessEnd, Order, Pools, Records, Workshop
    from polarproxy.rollout.service.request import TaskRequest
    from polarproxy.rollout.service.verdict import Stage

_JUDGED_UNFINISHED = (SessionStatus.AGENT_ERROR, SessionStatus.TIMEOUT)


class Lifecycle:
    """Runs rollouts side by side, each through all stages."""

    def __init__(self, workshop: Workshop, gateway: Gateway, records: Records, pauses: Pauses, pools: Pools) -> None:
        self._workshop, self._gateway, self._records, self._pauses = workshop, gateway, records, pauses
        self.pools = pools
        self._init, self._ready, self._run, self._post = (
            asyncio.Semaphore(size) for size in (pools.init, pools.ready, pools.run, pools.post)
        )

    @property
    def places(self) -> int:
        """Rollouts that can have a place at the same time."""
        return self.pools.ready + self.pools.run + self.pools.post

    async def run(self, order: Order) -> Verdict:
        """Ends with a verdict whatever happens, its session closed and rewarded and nothing left of its runtimes.

        Cancelled, it clears up as well: the session is `aborted`.
        """
        verdict = Verdict()
        stages = _Stages(verdict)
        async with AsyncExitStack() as runtimes:
            try:
                await self._through(order, verdict, stages, runtimes)
            except asyncio.CancelledError:
                await undisturbed(self._abort(order, runtimes))
                raise
            except (RuntimeFailed, ProxyRefused) as error:
                verdict.fail(SessionStatus.INFRA_ERROR, str(error))
            except Exception as error:  # noqa: BLE001 - a fault of ours costs this rollout and not the service
                verdict.fail(SessionStatus.INFRA_ERROR, f"polarproxy failed: {error!r}")
            stages.enter(None)
            try:
                if verdict.opened:
                    await self._settle(order, verdict)
            except ProxyRefused as error:
                verdict.reward = None
                verdict.fail(SessionStatus.INFRA_ERROR, f"how it ended could not be recorded: {error}")
        return verdict

    async def _through(self, order: Order, verdict: Verdict, stages: _Stages, runtimes: AsyncExitStack) -> None:
        request = order.request
        stages.enter("init")
        await self._ready.acquire()
        try:
            runtime = await self._made(request, runtimes)
            stages.enter("ready")
            await self._run.acquire()
        finally:
            self._ready.release()
        try:
            stages.enter("run")
            fresh = _Fresh(self, request, runtimes)
            done = await self._work(order, verdict, runtime, fresh)
        finally:
            self._run.release()
        stages.enter("post")
        async with self._post:
            verdict.status, verdict.detail.exit_code = done.status, done.ended.exit_code
            verdict.detail.error = done.problem or None
            verdict.heard(await self._records.calls(order.session_id))
            await self._judge(order, verdict, _evidence(self._records, order, verdict, done, runtime, fresh))

    async def _made(self, request: TaskRequest, runtimes: AsyncExitStack) -> Runtime:
        async with self._init:
            runtime = await self._workshop.runtime(request)
        runtimes.push_async_callback(_stopped, runtime)
        return runtime

    async def _work(self, order: Order, verdict: Verdict, runtime: Runtime, fresh: _Fresh) -> HarnessEnd:
        request = order.request
        wanted = {
            "task_id": request.task or order.task_id,
            "group_id": request.group or request.task or order.task_id,
            "harness": request.harness,
            "metadata": request.metadata | {"rollout": f"{order.task_id}/{order.number}"},
            **({} if request.model is None else {"model": request.model}),
            **({"sampling": request.sampling} if request.sampling else {}),
        }
        key = await self._gateway.open_session(order.session_id, wanted)
        verdict.opened = True
        budget = Budget(request.timeout_s)
        fresh.begin()
        with self._pauses.holding(budget):
            return await self._workshop.work(order, runtime, key, budget)

    async def _judge(self, order: Order, verdict: Verdict, evidence: Evidence) -> None:
        request = order.request
        unfinished = request.judge_unfinished and verdict.status in _JUDGED_UNFINISHED
        if not request.evaluators or not (verdict.status is SessionStatus.COMPLETED or unfinished):
            return
        try:
            reward = await evaluate(request.evaluators, evidence)
            verdict.reward = await self._composed(request, reward, evidence)
        except JudgeFailed as error:
            verdict.fail(SessionStatus.EVALUATOR_ERROR, str(error))

    async def _composed(self, request: TaskRequest, reward: Reward | None, evidence: Evidence) -> Reward | None:
        """By the reward specification, if there is one."""
        if request.reward is None or reward is None:
            return reward
        session = replace(evidence.session, reward=reward)
        judges = Judges(read_spec(request.reward))
        return await asyncio.to_thread(lambda: judges.judge(session, self._records.transcript(session)))

    async def _settle(self, order: Order, verdict: Verdict) -> None:
        """In this order: what a crash leaves closed and without a reward is run again, and out of every baseline."""
        await self._gateway.close_session(order.session_id, verdict.status)
        if verdict.reward is not None:
            await self._gateway.add_reward(order.session_id, verdict.reward)

    async def _abort(self, order: Order, runtimes: AsyncExitStack) -> None:
        await runtimes.aclose()
        with suppress(ProxyRefused):
            await self._gateway.close_session(order.session_id, SessionStatus.ABORTED)


class _Fresh:
    """A second runtime for the evaluator, made while the harness runs."""

    def __init__(self, lifecycle: Lifecycle, request: TaskRequest, runtimes: AsyncExitStack) -> None:
        self._lifecycle, self._request, self._runtimes = lifecycle, request, runtimes
        self._making: asyncio.Task[Runtime] | None = None

    def begin(self) -> None:
        if needs_fresh(self._request.evaluators):
            self._making = asyncio.create_task(self._lifecycle._made(self._request, self._runtimes))
            self._runtimes.push_async_callback(_ended, self._making)

    async def __call__(self) -> Runtime:
        """The runtime; raises `RuntimeFailed`."""
        assert self._making is not None
        return await self._making


class _Stages:
    """How long a rollout was in each stage."""

    def __init__(self, verdict: Verdict) -> None:
        self._seconds = verdict.detail.seconds = {}
        self._now: tuple[Stage, float] | None = None

    def enter(self, stage: Stage | None) -> None:
        """None: it is over."""
        at = time.monotonic()
        if self._now is not None:
            name, since = self._now
            self._seconds[name] = round(at - since, 3)
        self._now = None if stage is None else (stage, at)


def _evidence(
    records: Records, order: Order, verdict: Verdict, done: HarnessEnd, runtime: Runtime, fresh: _Fresh
) -> Evidence:
    request = order.request
    session = Session(
        order.session_id,
        datetime.now(UTC),
        status=verdict.status,
        task_id=request.task or order.task_id,
        group_id=request.group or request.task or order.task_id,
        harness=request.harness,
        model=request.model,
        metadata=tuple(sorted(request.metadata.items())),
    )
    return Evidence(session, request.instruction, done.ended, runtime, fresh, records.transcript)


async def _stopped(runtime: Runtime) -> None:
    # A folder that cannot be removed is left lying; what the rollout came to stands all the same.
    with suppress(OSError):
        await runtime.stop()


async def _ended(task: asyncio.Task[Runtime]) -> None:
    """A runtime that is still being made is not wanted any more; one that is made is stopped by its own callback."""
    task.cancel()
    await asyncio.wait((task,))
    if not task.cancelled():
        task.exception()
