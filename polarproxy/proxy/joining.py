"""A request that is tried again while its reply is still under way joins that reply.

A client that gives up on a connection may be heard to try again before it is seen to have left: behind a relay that keeps
connections, or where a network swallowed its farewell. Asked again, the engine would sample a second answer to one turn. So
the second try gets what the first one gets, from its beginning on; the engine is stopped only when nobody listens any more;
and there is one call, to the end.

Only a count of tries that rose joins (`x-stainless-retry-count`), with the same bytes of the same agent of the same named
session: two equal requests may be two questions. What has ended is never given again.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from polarproxy.trajectory.lineage import Identity, identity_of
from polarproxy.trajectory.repeats import RETRY_COUNT, tries_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from multidict import CIMultiDict

    from polarproxy.model import Dialect
    from polarproxy.proxy.carry import Carrier
    from polarproxy.proxy.outlet import HttpOutlet, Outlet
    from polarproxy.proxy.replies import Refusal
    from polarproxy.proxy.visit import Visit

    Said = bytes | Callable[[Outlet], Awaitable[None]]
    """One thing that an outlet is told; bytes: more of the stream."""

_KEPT = 2 << 20
"""Bytes of one reply that are kept for who may join it; a longer one can be joined no more."""
_PATIENCE_S = 1.0
"""How long a client may hold up those who listen with it."""


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


class SharedOutlet:
    """The outlet of a reply that several may listen to; what it is told goes to the first one at once, and is kept."""

    def __init__(self, first: HttpOutlet) -> None:
        self._first: HttpOutlet | None = first
        self._said: list[Said] = []
        self._ended = False
        """Whether the last of it was the end of the reply."""
        self._news = asyncio.Event()
        self._kept = 0
        self._waiting = False
        """Whether the first client is being waited for."""
        self.listening = 0
        """Clients that joined and are still there."""

    @property
    def open(self) -> bool:
        return self._first is not None and self._first.open

    @property
    def whole(self) -> bool:
        """Whether all that was said is still kept."""
        return self._kept <= _KEPT

    @property
    def alone(self) -> bool:
        """Whether nobody listens."""
        return self._first is None and not self.listening

    def leave(self) -> None:
        """The first client is gone."""
        self._first = None

    def hurry(self) -> None:
        """Somebody else listens now: a first client that is being waited for is given up."""
        if self._waiting and self._first is not None:
            self._first.abort()

    def wake(self) -> None:
        """There is something new to hear, or the reply has ended."""
        self._news.set()

    async def hear(self, outlet: Outlet, ended: Callable[[], bool]) -> bool:
        """Tells all that was said and will be to one who joined; False when the reply ended without an answer."""
        at = 0
        while True:
            self._news.clear()
            while at < len(self._said):
                await _tell(outlet, self._said[at])
                at += 1
            if self._ended:
                return True
            if ended():
                return False
            await self._news.wait()

    async def begin(self, head: CIMultiDict[str]) -> None:
        await self._tell(lambda outlet: outlet.begin(head))

    async def write(self, data: bytes) -> None:
        await self._tell(data, len(data))

    async def end(self, data: bytes) -> None:
        await self._tell(lambda outlet: outlet.end(data), len(data), last=True)

    async def answer(self, status: int, head: Mapping[str, str], body: bytes) -> None:
        await self._tell(lambda outlet: outlet.answer(status, head, body), len(body), last=True)

    async def refuse(self, refusal: Refusal, dialect: Dialect) -> None:
        await self._tell(lambda outlet: outlet.refuse(refusal, dialect), last=True)

    async def break_off(self, last: bytes) -> None:
        await self._tell(lambda outlet: outlet.break_off(last), last=True)

    async def _tell(self, said: Said, size: int = 0, *, last: bool = False) -> None:
        self._kept += size
        if self.whole or self.listening:
            self._said.append(said)
        else:
            self._said.clear()
        self._ended = last
        self._news.set()
        first = self._first
        if first is None:
            return
        try:
            self._waiting = True
            if self.listening:
                async with asyncio.timeout(_PATIENCE_S):
                    await _tell(first, said)
            else:
                await _tell(first, said)
        except (ConnectionResetError, TimeoutError) as error:
            # Half of something may have been written to it: nothing else may follow.
            first.abort()
            self._first = None
            if not self.listening:
                raise ConnectionResetError("the client does not read") from error
        finally:
            self._waiting = False


def _tell(outlet: Outlet, said: Said) -> Awaitable[None]:
    return outlet.write(said) if isinstance(said, bytes) else said(outlet)


@dataclass(slots=True)
class Generation:
    """A reply under way, in a task of its own: it outlives the client that asked first when others listen."""

    outlet: SharedOutlet
    tries: int
    """The latest try that listens."""
    task: asyncio.Task[None] = field(init=False)
    carrier: Carrier | None = None
    """None: the request is still being understood."""

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
        if known is not None and tries > known.tries and known.outlet.whole and not known.task.done():
            await known.follow(client, tries)
            return
        generation = Generation(SharedOutlet(client), tries)
        generation.task = asyncio.create_task(self._run(asked, generation, make))
        generation.task.add_done_callback(generation.ended)
        if known is None or known.task.done():
            self._known[asked] = generation
        await generation.lead()

    async def _run(self, asked: Question, generation: Generation, make: Callable[[Outlet], Awaitable[Carrier]]) -> None:
        try:
            generation.carrier = await make(generation.outlet)
            await generation.carrier.run()
        finally:
            if self._known.get(asked) is generation:
                del self._known[asked]
