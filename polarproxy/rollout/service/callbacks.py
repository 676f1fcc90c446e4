"""Telling the end of a task to who asked for it: signed, and again until it is taken or was tried often enough."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import time
from typing import TYPE_CHECKING

import aiohttp
import msgspec
from sqlalchemy.exc import DBAPIError

from polarproxy.rollout.service.request import TaskRequest
from polarproxy.rollout.service.showing import show_rollout, show_task
from polarproxy.store.task_rows import SERVICE, CallbackState

if TYPE_CHECKING:
    from polarproxy.store.task_rows import Task
    from polarproxy.store.tasks import TaskStore

_LOOK_S = 0.5
_ABREAST = 8
SIGNATURE = "X-Polarproxy-Signature"
TIMESTAMP = "X-Polarproxy-Timestamp"
DELIVERY = "X-Polarproxy-Delivery"


def sign(key: str, timestamp: str, body: bytes) -> str:
    """What the header `X-Polarproxy-Signature` must be: HMAC-SHA256 with the admin key over timestamp, a dot and the body."""
    return "sha256=" + hmac.new(key.encode(), timestamp.encode() + b"." + body, hashlib.sha256).hexdigest()


class Callbacks:
    """Runs until it is cancelled. Waits between tries double from `first_wait_s`, and each takes
    at most `patience_s`; what was not told survives a restart."""

    def __init__(
        self, store: TaskStore, key: str, *, first_wait_s: float = 1.0, tries: int = 10, patience_s: float = 30.0
    ) -> None:
        self._store, self._key, self._first, self._tries, self._patience = store, key, first_wait_s, tries, patience_s
        self._under_way: dict[str, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Looks for tasks that are over, again and again."""
        gate = asyncio.Semaphore(_ABREAST)
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=self._patience)) as http:
            try:
                while True:
                    for task in await self._due():
                        if task.task_id not in self._under_way:
                            telling = asyncio.create_task(self._tell(http, gate, task))
                            self._under_way[task.task_id] = telling
                    await asyncio.sleep(_LOOK_S)
            finally:
                for telling in self._under_way.values():
                    telling.cancel()
                await asyncio.gather(*self._under_way.values(), return_exceptions=True)

    async def _due(self) -> list[Task]:
        try:
            return await asyncio.to_thread(self._store.to_call_back, SERVICE)
        except DBAPIError:
            return []

    async def _tell(self, http: aiohttp.ClientSession, gate: asyncio.Semaphore, task: Task) -> None:
        try:
            told = False
            for attempt in range(self._tries):
                async with gate:
                    told = await self._try(http, task)
                if told or attempt + 1 == self._tries:
                    break
                await asyncio.sleep(self._first * 2**attempt)
            state = CallbackState.DELIVERED if told else CallbackState.FAILED
            await asyncio.to_thread(self._store.called_back, task.task_id, state)
        except DBAPIError:
            # It is still due, and is told again.
            await asyncio.sleep(self._first)
        finally:
            del self._under_way[task.task_id]

    async def _try(self, http: aiohttp.ClientSession, task: Task) -> bool:
        url = msgspec.json.decode(task.request.encode("utf-8", "replace"), type=TaskRequest).callback_url
        assert url is not None
        rollouts = await asyncio.to_thread(self._store.rollouts, task.task_id)
        body = msgspec.json.encode(
            show_task(task, rollouts) | {"sessions": [show_rollout(one) for one in rollouts]},
        )
        timestamp = str(int(time.time()))
        headers = {
            "Content-Type": "application/json",
            TIMESTAMP: timestamp,
            SIGNATURE: sign(self._key, timestamp, body),
            DELIVERY: task.task_id,
        }
        try:
            async with http.post(url, data=body, headers=headers, allow_redirects=False) as answer:
                return 200 <= answer.status < 300
        except (aiohttp.ClientError, TimeoutError, ValueError):
            return False
