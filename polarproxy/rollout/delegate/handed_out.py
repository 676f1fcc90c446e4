"""Rollouts that a trainer hands out: each request is a task, whose answer is what became of it."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, ParamSpec, TypeVar

import msgspec
from sqlalchemy.exc import DBAPIError

from polarproxy.errors import BadRequest, NotFound, StoreConflict, StoreUnavailable
from polarproxy.model import ComponentKind
from polarproxy.rollout.delegate.messages import Metric, RolloutResponse, RolloutResult, Trajectory
from polarproxy.rollout.service.request import check_request
from polarproxy.rollout.service.verdict import Detail
from polarproxy.store.ids import new_id
from polarproxy.store.task_rows import NewTask, TaskState

if TYPE_CHECKING:
    from collections.abc import Callable

    from polarproxy.rollout.delegate.messages import RolloutRequest
    from polarproxy.rollout.service.ports import Records
    from polarproxy.rollout.service.request import TaskRequest
    from polarproxy.store.task_rows import Rollout
    from polarproxy.store.tasks import TaskStore

_P = ParamSpec("_P")
_T = TypeVar("_T")

_LOOK_S = 0.25
_LOOK_AGAIN_S = 5.0
"""Events of two processes may come to light in another order than that of their numbers; nobody waits for ever then."""
_OVER = ("task_done", "task_cancelled")
KEY = "delegate/"
"""What the submit key begins with; the request's id follows."""


class HandedOut:
    """Submits tasks and waits for their end.

    `check` raises `BadRequest` for a task that cannot be run; `wake` tells the runner that there is something to do.
    """

    def __init__(
        self, store: TaskStore, records: Records, check: Callable[[TaskRequest], None], wake: Callable[[], None]
    ) -> None:
        self._store, self._records, self._check, self._wake = store, records, check, wake
        self._waiting: dict[str, asyncio.Event] = {}

    async def follow(self) -> None:
        """Looks which tasks are over; runs until it is cancelled."""
        last: int | None = None
        while True:
            with suppress(StoreUnavailable):
                if last is None:
                    last = await _ask(self._store.last_event)
                for event in await _ask(self._store.events, last):
                    last = event.event_id
                    if event.name in _OVER and event.task_id in self._waiting:
                        self._waiting[event.task_id].set()
            await asyncio.sleep(_LOOK_S)

    async def answer(self, request: RolloutRequest) -> RolloutResponse:
        """Once the task is over, however often it is asked for. Raises `BadRequest`, `StoreUnavailable`."""
        asked = request.task
        check_request(asked)
        self._check(asked)
        new = NewTask(
            task_id=new_id("t"),
            request=msgspec.json.encode(asked).decode(),
            rollouts=asked.num_samples,
            key=KEY + request.id,
            priority=asked.priority,
            enough=asked.enough,
            callback=asked.callback_url is not None,
        )
        try:
            (task,) = await _ask(self._store.submit, [new])
        except StoreConflict as error:
            raise BadRequest(f"the id {request.id!r} belongs to a request with another task") from error
        self._wake()
        state = await self._over(task.task_id)
        rollouts = await _ask(self._store.rollouts, task.task_id)
        results = [await self._result(request, task.task_id, one) for one in rollouts]
        return RolloutResponse(id=request.id, task_id=task.task_id, state=state, rollouts=results)

    async def _over(self, task_id: str) -> TaskState:
        over = self._waiting.setdefault(task_id, asyncio.Event())
        try:
            while True:
                over.clear()
                if (task := await _ask(self._store.task, task_id)).state is not TaskState.OPEN:
                    return task.state
                with suppress(TimeoutError):
                    async with asyncio.timeout(_LOOK_AGAIN_S):
                        await over.wait()
        finally:
            self._waiting.pop(task_id, None)

    async def _result(self, request: RolloutRequest, task_id: str, one: Rollout) -> RolloutResult:
        name, asked = f"{request.id}/{one.number}", request.task
        detail, outcome = Detail(), one.outcome
        if outcome is not None:
            detail = msgspec.json.decode(outcome.detail.encode("utf-8", "replace"), type=Detail)
        trajectory = None
        if one.session_id is not None:
            trajectory = Trajectory(
                session_id=one.session_id,
                task_id=asked.task or task_id,
                group_id=asked.group or asked.task or task_id,
                turns=detail.turns,
                completion_tokens=detail.completion_tokens,
            )
        return RolloutResult(
            id=name,
            state=one.state,
            status=None if outcome is None else outcome.status,
            aggregate_reward_score=None if outcome is None else outcome.reward,
            metrics_list=await self._metrics(one.session_id, detail.components),
            usable=outcome is not None and outcome.usable,
            trajectory=trajectory,
            error=detail.error,
        )

    async def _metrics(self, session_id: str | None, values: dict[str, float]) -> list[Metric]:
        """By the values that the rollout ended with, whatever it was judged by since."""
        if not values or session_id is None:
            return []
        reward = None
        with suppress(NotFound):
            reward = (await self._records.session(session_id)).reward
        kinds = {} if reward is None else {part.name: part.kind for part in reward.components}
        return [
            Metric(name=name, value=value, type=kinds.get(name, ComponentKind.METRIC)) for name, value in values.items()
        ]


async def _ask(ask: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
    try:
        return await asyncio.to_thread(ask, *args, **kwargs)
    except DBAPIError as error:
        raise StoreUnavailable(f"the database could not be asked: {error.orig}") from error
