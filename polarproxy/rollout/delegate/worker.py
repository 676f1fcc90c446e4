"""Takes requests from one queue and answers them in another, at least once."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
from sqlalchemy.exc import DBAPIError

from polarproxy.errors import BadRequest, MessageTooLarge, PolarproxyError, QueueFailed
from polarproxy.rollout.delegate.messages import RolloutRequest, RolloutResponse, encode, read_request, refusal
from polarproxy.rollout.service.steady import undisturbed

if TYPE_CHECKING:
    from collections.abc import Callable

    from polarproxy.rollout.delegate.generation import Generation
    from polarproxy.rollout.delegate.handed_out import HandedOut
    from polarproxy.rollout.delegate.messages import Response
    from polarproxy.rollout.delegate.queues import Delivery, Queue

_TROUBLE_S = 5.0
_MOST_TIMES = 5
"""What goes wrong so often is answered with the error and not tried again."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How a delegate takes messages."""

    most: int
    """Messages that are under way at once."""
    visible_s: float = 60.0
    """Nobody else gets a message for so long; a delegate that lives says so again in time."""
    again_s: float = 10.0
    """A message that went wrong comes again after so long."""


class Delegate:
    """Runs until it is cancelled; what is under way then goes back to its queue."""

    def __init__(
        self,
        requests: Queue,
        responses: Queue,
        handed_out: HandedOut,
        generation: Generation,
        pace: Pace,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`say` gets troubles in words."""
        self._requests, self._responses, self._pace, self._say = requests, responses, pace, say
        self._handed_out, self._generation = handed_out, generation
        self._active: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Answers messages side by side."""
        following = asyncio.create_task(self._handed_out.follow())
        try:
            while True:
                await self._take()
        finally:
            tasks = {following, *self._active}
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    async def _take(self) -> None:
        free = self._pace.most - len(self._active)
        if free <= 0:
            await asyncio.wait(self._active, return_when=asyncio.FIRST_COMPLETED)
            return
        receiving = asyncio.ensure_future(self._requests.receive(free, self._pace.visible_s))
        try:
            deliveries = await asyncio.shield(receiving)
        except asyncio.CancelledError:
            await undisturbed(self._hand_back(receiving))
            raise
        except QueueFailed as error:
            self._say(str(error))
            await asyncio.sleep(_TROUBLE_S)
            return
        for delivery in deliveries:
            task = asyncio.create_task(self._one(delivery))
            self._active.add(task)
            task.add_done_callback(self._active.discard)
        # A task that is cancelled before it ran a step would not give its message back.
        await asyncio.sleep(0)

    async def _hand_back(self, receiving: asyncio.Future[list[Delivery]]) -> None:
        """What still comes when nothing is to be worked off any more."""
        with suppress(QueueFailed):
            for delivery in await receiving:
                await self._requests.extend(delivery, 0.0)

    async def _one(self, delivery: Delivery) -> None:
        """The response is the queue's before the request is acknowledged."""
        keeping = asyncio.create_task(self._keep(delivery))
        try:
            response = await self._answer(delivery)
            keeping.cancel()
            if response is None:
                await self._requests.extend(delivery, self._pace.again_s)
                return
            await self._send(response)
            await self._requests.acknowledge(delivery)
        except QueueFailed as error:
            # It comes again, and is answered in the same way.
            self._say(str(error))
        except asyncio.CancelledError:
            with suppress(QueueFailed):
                await undisturbed(self._requests.extend(delivery, 0.0))
        finally:
            keeping.cancel()

    async def _keep(self, delivery: Delivery) -> None:
        while True:
            await asyncio.sleep(self._pace.visible_s / 3)
            try:
                await self._requests.extend(delivery, self._pace.visible_s)
            except QueueFailed as error:
                self._say(str(error))

    async def _answer(self, delivery: Delivery) -> Response | None:
        """None: it went wrong, and may go well another time."""
        try:
            request = read_request(delivery.text)
            if isinstance(request, RolloutRequest):
                return await self._handed_out.answer(request)
            return await self._generation.answer(request)
        except BadRequest as error:
            return refusal(delivery.text, str(error))
        except (PolarproxyError, DBAPIError) as error:
            why = str(error)
        except Exception as error:  # noqa: BLE001 - a fault of ours costs this message and not the delegate
            why = f"polarproxy failed: {error!r}"
        self._say(f"a request could not be worked off ({delivery.times} of {_MOST_TIMES}): {why}")
        return refusal(delivery.text, why) if delivery.times >= _MOST_TIMES else None

    async def _send(self, response: Response) -> None:
        try:
            await self._responses.send(encode(response))
        except MessageTooLarge as error:
            if isinstance(response, RolloutResponse) and response.rollouts:
                less = msgspec.structs.replace(response, rollouts=[], left_out=len(response.rollouts))
                await self._send(less)
            else:
                await self._responses.send(encode(refusal(encode(response), str(error))))
