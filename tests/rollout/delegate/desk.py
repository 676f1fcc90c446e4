"""A delegate between two queues, over a real proxy, real runtimes and a scripted engine."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from polarproxy.cli.delegating import key_of
from polarproxy.cli.records import StoreRecords
from polarproxy.errors import BadRequest
from polarproxy.rollout.delegate.generation import Generation
from polarproxy.rollout.delegate.handed_out import HandedOut
from polarproxy.rollout.delegate.queues import LocalQueue, Queue
from polarproxy.rollout.delegate.worker import Delegate, Pace
from polarproxy.rollout.service.request import TaskRequest
from tests.rollout.service.shop import SIMPLE, Service, service

PACE = Pace(most=8, visible_s=0.6, again_s=0.05)


def rollout(id: str = "r1", instruction: str = SIMPLE, **more: Any) -> dict[str, Any]:
    task = {"instruction": instruction, "harness": "none", **more}
    return {"version": "v0", "type": "rollout_request", "id": id, "task": task}


def generate(id: str = "g1", session_id: str = "s1", **more: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": "hi"}]
    request = {"version": "v0", "type": "generate_request", "id": id, "session_id": session_id, "messages": messages}
    return request | more


@dataclass
class Desk:
    """`asked` and `answered` are the ends of a trainer."""

    made: Service
    asked: Queue
    answered: Queue
    said: list[str] = field(default_factory=list)

    async def ask(self, message: dict[str, Any] | str) -> None:
        await self.asked.send(message if isinstance(message, str) else json.dumps(message))

    async def answer(self, seconds: float = 30.0) -> Any:
        """The next response."""
        async with asyncio.timeout(seconds):
            while not (found := await self.answered.receive(1, 60.0)):
                pass
        await self.answered.acknowledge(found[0])
        return json.loads(found[0].text)

    async def answer_to(self, message: dict[str, Any] | str) -> Any:
        await self.ask(message)
        return await self.answer()

    async def worked_off(self, seconds: float = 10.0) -> None:
        """Waits until no request is left in the queue."""
        assert isinstance(self.asked, LocalQueue)
        async with asyncio.timeout(seconds):
            while self.asked.left:  # noqa: ASYNC110
                await asyncio.sleep(0.02)

    @asynccontextmanager
    async def working(self, pace: Pace = PACE) -> AsyncIterator[None]:
        """A delegate works until the block ends."""
        made = self.made
        async with Generation(made.rig.base, partial(key_of, made.rig.parts.signer)) as generation:
            records = StoreRecords(made.rig.parts.repository)
            handed_out = HandedOut(made.store, records, only_none, made.runner.wake)
            delegate = Delegate(self.asked, self.answered, handed_out, generation, pace, self.said.append)
            task = asyncio.create_task(delegate.run())
            try:
                yield
            finally:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task


def only_none(request: TaskRequest) -> None:
    if request.harness != "none":
        raise BadRequest(f"there is no harness {request.harness!r}")


@asynccontextmanager
async def desk(
    folder: Path, asked: Queue | None = None, answered: Queue | None = None, *, working: bool = True, **more: Any
) -> AsyncIterator[Desk]:
    async with service(folder, **more) as made:
        own = Desk(made, asked or LocalQueue(), answered or LocalQueue())
        if not working:
            yield own
            return
        async with own.working():
            yield own
