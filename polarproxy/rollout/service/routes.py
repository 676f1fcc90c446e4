"""The routes of the task service. Who may use them is for the proxy to say, which serves them."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import msgspec
from aiohttp import web
from sqlalchemy.exc import DBAPIError

from polarproxy.errors import BadRequest, NotFound, StoreUnavailable
from polarproxy.rollout.service.request import read_request
from polarproxy.rollout.service.showing import show_event, show_rollout, show_task
from polarproxy.store.ids import new_id
from polarproxy.store.task_rows import NewTask, TaskState

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from polarproxy.rollout.service.request import TaskRequest
    from polarproxy.store.tasks import TaskStore

    Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
    Route = tuple[str, str, Handler]

_P = ParamSpec("_P")
_T = TypeVar("_T")

_LOOK_S = 0.25
_ALIVE_S = 15.0
_MOST_LISTED = 10_000
_LONGEST_KEY = 255
KEY_HEADER = "Idempotency-Key"


class TaskRoutes:
    """Submitting, looking, cancelling, listening. `wake` is called when there is something to do."""

    def __init__(
        self,
        store: TaskStore,
        check: Callable[[TaskRequest], None],
        wake: Callable[[], None],
        ending: asyncio.Event,
    ) -> None:
        self._store, self._check, self._wake = store, check, wake
        self._ending = ending
        """Set when the proxy ends: those who listen are let go."""

    @property
    def all(self) -> tuple[Route, ...]:
        """Method, path and handler of each."""
        return (
            ("POST", "/api/tasks", self.submit),
            ("GET", "/api/tasks", self.list),
            ("GET", "/api/tasks/{task_id}", self.show),
            ("GET", "/api/tasks/{task_id}/sessions", self.sessions),
            ("DELETE", "/api/tasks/{task_id}", self.cancel),
            ("GET", "/api/events", self.listen),
        )

    async def submit(self, http: web.Request) -> web.Response:
        """`POST /api/tasks`. With the header `Idempotency-Key`, the same request again is the same task."""
        body, key = await http.read(), http.headers.get(KEY_HEADER)
        if key is not None and not (0 < len(key) <= _LONGEST_KEY and key.isascii() and key.isprintable()):
            raise BadRequest(f"{KEY_HEADER} must have 1 to {_LONGEST_KEY} printable ASCII characters")
        request = read_request(body)
        self._check(request)
        new = NewTask(
            task_id=new_id("t"),
            request=msgspec.json.encode(request).decode(),
            rollouts=request.num_samples,
            key=key,
            priority=request.priority,
            enough=request.enough,
            callback=request.callback_url is not None,
        )
        (task,) = await self._ask(self._store.submit, [new])
        self._wake()
        rollouts = await self._ask(self._store.rollouts, task.task_id)
        return _json(show_task(task, rollouts), 201 if task.task_id == new.task_id else 200)

    async def list(self, http: web.Request) -> web.Response:
        """`GET /api/tasks`, the newest first; `?state=open`, `?limit=100`."""
        try:
            state = TaskState(http.query["state"]) if "state" in http.query else None
            limit = int(http.query.get("limit", "100"))
        except ValueError as error:
            raise BadRequest(f"state is one of {', '.join(TaskState)}, and limit a number: {error}") from error
        if not 1 <= limit <= _MOST_LISTED:
            raise BadRequest(f"limit must lie in 1..{_MOST_LISTED}, not {limit}")
        tasks = await self._ask(self._store.tasks, state=state, limit=limit)
        found = [(task, await self._ask(self._store.rollouts, task.task_id)) for task in tasks]
        return _json([show_task(task, rollouts) for task, rollouts in found])

    async def show(self, http: web.Request) -> web.Response:
        """`GET /api/tasks/{task_id}`."""
        return await self._shown(_task_id(http))

    async def sessions(self, http: web.Request) -> web.Response:
        """`GET /api/tasks/{task_id}/sessions`: every rollout with the session of its latest attempt."""
        rollouts = await self._ask(self._store.rollouts, _task_id(http))
        return _json([show_rollout(one) for one in rollouts])

    async def cancel(self, http: web.Request) -> web.Response:
        """`DELETE /api/tasks/{task_id}`: what waits is left out, what runs is broken off with all its processes."""
        await self._ask(self._store.cancel, _task_id(http))
        self._wake()
        return await self._shown(_task_id(http))

    async def listen(self, http: web.Request) -> web.StreamResponse:
        """`GET /api/events`: server-sent events, from now on or after `Last-Event-ID`; `?task=ID` tells of one task."""
        after = http.headers.get("Last-Event-ID") or http.query.get("after")
        try:
            last = await self._ask(self._store.last_event) if after is None else int(after)
        except ValueError as error:
            raise BadRequest(f"Last-Event-ID is the number of an event, not {after!r}") from error
        if not 0 <= last < 2**63:
            raise BadRequest(f"Last-Event-ID is the number of an event, not {last}")
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-cache"})
        await response.prepare(http)
        silent = 0.0
        while not self._ending.is_set():
            events = await self._ask(self._store.events, last)
            wanted = [event for event in events if http.query.get("task") in (None, event.task_id)]
            silent = 0.0 if wanted else silent + _LOOK_S
            if wanted or silent >= _ALIVE_S:
                silent = 0.0
                await response.write(b"".join(map(show_event, wanted)) or b": alive\n\n")
            last = events[-1].event_id if events else last
            with suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_S):
                    await self._ending.wait()
        return response

    async def _shown(self, task_id: str) -> web.Response:
        task = await self._ask(self._store.task, task_id)
        return _json(show_task(task, await self._ask(self._store.rollouts, task_id)))

    async def _ask(self, ask: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        try:
            return await asyncio.to_thread(ask, *args, **kwargs)
        except DBAPIError as error:
            raise StoreUnavailable(f"the database could not be asked: {error.orig}") from error


def _task_id(http: web.Request) -> str:
    """Raises `NotFound` for what is no task's id, and which no database could be asked for."""
    given = http.match_info["task_id"]
    if not (given.isascii() and given.isprintable()):
        raise NotFound(f"there is no task {given!r}; GET /api/tasks lists those there are")
    return given


def _json(value: Any, status: int = 200) -> web.Response:
    return web.Response(status=status, body=msgspec.json.encode(value), content_type="application/json")
