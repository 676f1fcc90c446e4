"""A request that is tried again while its reply is still under way joins that reply.

A client that gives up on a connection may be heard to try again before it is seen to have left: behind a relay that keeps
connections, or where a network swallowed its farewell. Asked again, the engine would sample a second answer to one turn. So
the second try gets what the first one gets, from its beginning on; the engine is stopped only when nobody listens any more;
and there is one call, to the end.

Only a count of tries that rose joins (`x-stainless-retry-count`), with the same bytes of the same agent of the same named
session: two equal requests may be two questions, and a try that may be at either of two joins none. What has ended is never
given again.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from polarproxy.proxy.shared_outlet import SharedOutlet
from polarproxy.trajectory.lineage import Identity, identity_of
from polarproxy.trajectory.repeats import RETRY_COUNT, tries_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from polarproxy.proxy.carry import Carrier
    from polarproxy.proxy.outlet import HttpOutlet, Outlet
    from polarproxy.proxy.visit import Visit


@dataclass(frozen=True, slots=True)
class Question:
    """What makes two requests one."""

    session_id: str
    target: str
    """Path and query."""
    agent: Identity
    body: bytes = field(hash=False)


def question(visit: Visit, body: bytes) -> Question | None:
    """The question of a client that counts its tries, in a session that it names. None: it is none of these."""
    session_id = visit.address.session_id
    if session_id is None or RETRY_COUNT not in visit.headers:
        return None
    target = f"{visit.address.route}?{visit.raw_query}"
    return Question(session_id, target, identity_of(visit.headers), body)


@dataclass(slots=True)
class Generation:
    """A reply under way, in a task of its own: it outlives the client that asked first when others listen."""

    outlet: SharedOutlet
    tries: int
    """The latest try that listens."""
    task: asyncio.Task[None] = field(init=False)
    carrier: Carrier | None = None
    """None: the request is still being understood."""
    has_twin: bool = False
    """Whether the same was asked once more, as a question of its own: a later try may be at either."""

    @property
    def lives(self) -> bool:
        """Whether it goes on: it has not ended, and is not being stopped."""
        return not self.task.done() and not self.task.cancelling()

    async def lead(self) -> None:
        """For the client that asked first."""
        try:
            await asyncio.shield(self.task)
        except asyncio.CancelledError:
            self.outlet.leave()
            await self._stop_if_alone()
            raise

    async def follow(self, client: HttpOutlet, tries: int) -> None:
        """For one who joins."""
        self.tries = tries
        self.outlet.listening += 1
        self.outlet.hurry()
        try:
            whole = await self.outlet.hear(client, self.task.done)
        except (asyncio.CancelledError, ConnectionResetError):
            self.outlet.listening -= 1
            await self._stop_if_alone()
            raise
        self.outlet.listening -= 1
        if not whole:
            self.task.result()
        elif self.carrier is not None and client.open:
            self.carrier.delivered_again(f"yes, to try {tries}")

    def ended(self, task: asyncio.Task[None]) -> None:
        """The task is done."""
        if not task.cancelled():
            # Whoever listened to the end did not ask how the task ended.
            task.exception()
        self.outlet.wake()

    async def _stop_if_alone(self) -> None:
        if self.outlet.alone and not self.task.done():
            self.task.cancel()
            await asyncio.wait({self.task})


class Underway:
    """The replies of a proxy that may be joined."""

    def __init__(self) -> None:
        self._known: dict[Question, Generation] = {}

    async def ask(
        self, asked: Question, visit: Visit, client: HttpOutlet, make: Callable[[Outlet], Awaitable[Carrier]]
    ) -> None:
        """Gives the reply to a question: the one under way, when this is a later try at it, else a new one.

        Raises what `make` and the carrier raise.
        """
        tries = tries_of(visit.headers)
        known = self._known.get(asked)
        if known is not None and known.lives:
            if tries > known.tries and known.outlet.whole and not known.has_twin:
                await known.follow(client, tries)
                return
            known.has_twin = True
        generation = Generation(SharedOutlet(client), tries)
        generation.task = asyncio.create_task(self._run(asked, generation, make))
        generation.task.add_done_callback(generation.ended)
        if known is None or not known.lives:
            self._known[asked] = generation
        await generation.lead()

    async def _run(self, asked: Question, generation: Generation, make: Callable[[Outlet], Awaitable[Carrier]]) -> None:
        try:
            generation.carrier = await make(generation.outlet)
            await generation.carrier.run()
        finally:
            if self._known.get(asked) is generation:
                del self._known[asked]
