"""Keeps the rollouts of a job running: takes those that wait, ends those that are done, and survives a restart."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, ParamSpec, TypeVar

import msgspec
from sqlalchemy.exc import DBAPIError

from polarproxy.errors import NotFound, ProxyRefused
from polarproxy.model import SessionStatus
from polarproxy.rollout.service.ports import Order
from polarproxy.rollout.service.request import TaskRequest
from polarproxy.rollout.service.steady import undisturbed
from polarproxy.rollout.service.verdict import Verdict
from polarproxy.store.task_rows import MOST_ATTEMPTS

if TYPE_CHECKING:
    from collections.abc import Callable

    from polarproxy.rollout.service.gateway import Gateway
    from polarproxy.rollout.service.ports import Executor, Records
    from polarproxy.store.ownership import Ownership
    from polarproxy.store.task_rows import Outcome, Rollout
    from polarproxy.store.tasks import TaskStore

_P = ParamSpec("_P")
_T = TypeVar("_T")

_LOOK_S = 1.0
"""How often it looks for what other processes submitted or cancelled."""
_TROUBLE_S = 1.0


@dataclass(frozen=True, slots=True)
class Finished:
    """A rollout that is over, for who watches."""

    rollout: Rollout
    outcome: Outcome


class Runner:
    """The one runner of a job, in this process."""

    def __init__(
        self,
        store: TaskStore,
        executor: Executor,
        gateway: Gateway,
        records: Records,
        ownership: Ownership,
        job: str,
        watch: Callable[[Finished], None] = lambda _: None,
    ) -> None:
        self._store, self._executor, self._gateway, self._records = store, executor, gateway, records
        self._ownership, self._job, self._watch = ownership, job, watch
        self._requests: dict[str, TaskRequest] = {}
        self._active: dict[tuple[str, int], asyncio.Task[None]] = {}
        self._skipped: set[tuple[str, int]] = set()
        self._woken = asyncio.Event()
        self._owner = False
        self._abandoned = False
        """Whether what is broken off now is somebody else's."""

    @property
    def active(self) -> int:
        """Rollouts under way."""
        return len(self._active)

    def wake(self) -> None:
        """Something was submitted or cancelled here."""
        self._woken.set()

    async def run(self, *, until_done: bool = False) -> None:
        """Works until it is cancelled, or with `until_done` until nothing waits or runs.

        Cancelled, what runs is broken off and waits again, as if it had never been taken.
        """
        try:
            while True:
                self._woken.clear()
                if await self._owns():
                    await self._cancel_unwanted()
                    await self._take()
                    if until_done and not self._active:
                        return
                await self._wait()
        finally:
            await undisturbed(self._stop())
            self._ownership.release()

    async def _owns(self) -> bool:
        """Whether the job is this runner's; begins by clearing up after the one before."""
        held = await self._in_thread(self._ownership.held)
        if self._owner and not held:
            # Another one may be running the same rollouts by now, and says what becomes of them.
            self._owner = False
            await self._stop(given_back=False)
        if held and not self._owner:
            await self._recover()
            self._owner = True
        return held

    async def _wait(self) -> None:
        woken = asyncio.ensure_future(self._woken.wait())
        await asyncio.wait((woken, *self._active.values()), timeout=_LOOK_S, return_when=asyncio.FIRST_COMPLETED)
        woken.cancel()

    async def _take(self) -> None:
        free = self._executor.places - len(self._active)
        if free <= 0:
            return
        for rollout in await self._in_thread(self._store.take, self._job, free):
            key = (rollout.task_id, rollout.number)
            self._active[key] = asyncio.create_task(self._one(rollout))
        # A task that is cancelled before it ran a step would not clear up.
        await asyncio.sleep(0)

    async def _one(self, rollout: Rollout) -> None:
        key = (rollout.task_id, rollout.number)
        try:
            request = await self._request(rollout.task_id)
            assert rollout.session_id is not None
            verdict = await self._executor.run(Order(*key, rollout.session_id, request))
            await self._end(rollout, verdict, request)
        except asyncio.CancelledError:
            if not self._abandoned and key not in self._skipped:
                await undisturbed(self._in_thread(self._store.give_back, *key))
        except Exception as error:  # noqa: BLE001 - a fault of ours costs this rollout, which must not run for ever
            lost = Verdict()
            lost.fail(SessionStatus.INFRA_ERROR, f"polarproxy failed: {error!r}")
            await undisturbed(self._end(rollout, lost, await self._request(rollout.task_id)))
        finally:
            self._skipped.discard(key)
            del self._active[key]
            self._woken.set()

    async def _request(self, task_id: str) -> TaskRequest:
        if task_id not in self._requests:
            task = await self._in_thread(self._store.task, task_id)
            self._requests[task_id] = msgspec.json.decode(task.request.encode(), type=TaskRequest)
        return self._requests[task_id]

    async def _end(self, rollout: Rollout, verdict: Verdict, request: TaskRequest) -> None:
        """An infrastructure error is nobody's fault and is tried once more."""
        if verdict.status is SessionStatus.INFRA_ERROR and rollout.attempts < MOST_ATTEMPTS:
            before = await self._ended_or_again(rollout)
            if before is None:
                return
            verdict = before
        outcome = verdict.outcome(request.keep, judged=bool(request.evaluators))
        # Once it is on its way it is not broken off: what was run is not run again.
        await undisturbed(self._in_thread(self._store.finish, rollout.task_id, rollout.number, outcome))
        self._watch(Finished(rollout, outcome))

    async def _cancel_unwanted(self) -> None:
        """Also what another process cancelled. What was taken since the question was asked is not meant."""
        asked = set(self._active) - self._skipped
        if asked:
            unwanted = asked - await self._in_thread(self._store.running, self._job)
            for key in unwanted & set(self._active):
                self._skipped.add(key)
                self._active[key].cancel()

    async def _recover(self) -> None:
        """Rollouts of a runner that died: those whose session is closed and judged had ended; the others run again."""
        for rollout in await self._in_thread(self._store.interrupted, self._job):
            verdict = await self._ended_or_again(rollout)
            if verdict is not None:
                await self._end(rollout, verdict, await self._request(rollout.task_id))

    async def _ended_or_again(self, rollout: Rollout) -> Verdict | None:
        """How a rollout ended of which whoever ran it could not tell. None: it had not, and waits again."""
        verdict = await self._ended_before(rollout)
        if verdict is not None and verdict.status is not SessionStatus.INFRA_ERROR:
            return verdict
        if rollout.session_id is not None:
            # Refused, it had not been made, and nothing was recorded under its name.
            with suppress(ProxyRefused):
                await self._gateway.close_session(rollout.session_id, SessionStatus.INFRA_ERROR)
        await self._in_thread(self._store.run_again, rollout.task_id, rollout.number)
        return None

    async def _ended_before(self, rollout: Rollout) -> Verdict | None:
        if rollout.session_id is None:
            return None
        try:
            session = await self._records.session(rollout.session_id)
        except NotFound:
            return None
        request = await self._request(rollout.task_id)
        if session.status is SessionStatus.OPEN or (request.evaluators and session.reward is None):
            return None
        verdict = Verdict(session.status, session.reward)
        verdict.heard(await self._records.calls(rollout.session_id))
        return verdict

    async def _stop(self, *, given_back: bool = True) -> None:
        self._abandoned = not given_back
        tasks = list(self._active.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        self._abandoned = False

    async def _in_thread(self, ask: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """Asks the store until it answers: a database that is away ends no rollout."""
        while True:
            try:
                return await asyncio.to_thread(ask, *args, **kwargs)
            except DBAPIError:
                await asyncio.sleep(_TROUBLE_S)
