"""Places in sessions for one of several proxies: requests that arrive together ask the database together."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter, OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar

from sqlalchemy.exc import SQLAlchemyError

from polarproxy.errors import SessionClosed, StoreDamaged, StoreUnavailable
from polarproxy.model import SessionStatus
from polarproxy.store.database import reason
from polarproxy.store.heads import Given, Heads
from polarproxy.store.places import Place, Waiting
from polarproxy.store.terms import Terms, terms_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Engine

_T = TypeVar("_T")
_KEPT = 65_536
_QUIET_S = 1.0
"""How long the database is not asked again when it did not answer and there is a spool."""


@dataclass(frozen=True, slots=True)
class _Answer:
    ordinal: int
    known: Given


_Answered = asyncio.Future["_Answer | StoreUnavailable | None"]
"""None: only the policy version was asked for."""


@dataclass(frozen=True, slots=True)
class _Asked:
    session_id: str | None
    """None: only the policy version is asked for."""
    answered: _Answered


def session_closed(session_id: str, status: SessionStatus) -> SessionClosed:
    """The refusal of a call in a session that ended."""
    return SessionClosed(f"session {session_id} is closed ({status}); make a new one for more calls")


class Spooled(Protocol):
    """What has to be known of a spool to give out places."""

    @property
    def away(self) -> bool:
        """Whether the database is not to be asked."""

    def holds_session(self, session_id: str) -> bool:
        """Whether anything of this session waits in the spool."""

    def next_ordinal(self, session_id: str) -> int:
        """The ordinal beyond those of all calls of this session that wait in the spool; 0 when none does."""


class SharedArrivals:
    """`Arrivals` over counters in PostgreSQL. One question is under way at a time; who comes meanwhile is in the next.

    With a spool, a call that comes while the database is away has a place that waits; the next question asks for it too.
    """

    def __init__(self, engine: Engine, timeout: float, spooled: Spooled | None = None) -> None:
        """An answer that takes longer than `timeout` seconds is none."""
        self._heads = Heads(engine)
        self._timeout = timeout
        self._spooled = spooled
        self._waiting: list[_Asked] = []
        self._asking: asyncio.Task[None] | None = None
        self._terms: OrderedDict[str, Terms] = OrderedDict()
        """Of the latest sessions that were made here, or made calls."""
        self._closed: OrderedDict[str, SessionStatus] = OrderedDict()
        """Of the latest sessions that are known to be closed, for when the database cannot be asked."""
        self._places = Waiting()
        self._giving = threading.Lock()
        self._quiet_until = 0.0
        self._refused: str | None = None
        """A session that was given no place when one was asked for last. None: places are given."""
        self.policy_version = 0

    async def arrive(self, session_id: str) -> Place:
        """Asks the database; a place that is not used stays free."""
        if self._spooled is None:
            return await self._place(session_id)
        # What is ahead of it in the spool must be ahead of it in the session.
        if self._away or self._spooled.holds_session(session_id):
            return self._place_that_waits(session_id)
        try:
            return await self._place(session_id)
        except StoreUnavailable:
            self._quiet_until = time.monotonic() + _QUIET_S
            return self._place_that_waits(session_id)

    async def _place(self, session_id: str) -> Place:
        answer = await self._ask(session_id)
        assert answer is not None
        self._learn(session_id, answer.known)
        if answer.known.status is not SessionStatus.OPEN:
            raise session_closed(session_id, answer.known.status)
        return Place(session_id, answer.ordinal)

    def _learn(self, session_id: str, known: Given) -> None:
        """Raises `StoreDamaged`."""
        self.closed(session_id, known.status)
        terms = terms_of(session_id, known.prompts, known.metadata)
        # A session that was made here while the database was asked may not be in its answer.
        _keep(self._terms, session_id, self._terms.get(session_id, terms) if terms == Terms() else terms)

    def _place_that_waits(self, session_id: str) -> Place:
        status = self._closed.get(session_id)
        if status is not None:
            raise session_closed(session_id, status)
        return self._places.arrive(session_id)

    @property
    def _away(self) -> bool:
        return self._spooled is not None and (self._spooled.away or time.monotonic() < self._quiet_until)

    async def catch_up(self) -> None:
        """Asks the database. When it cannot answer, the latest known version stands, and storing the call will tell."""
        if self._away:
            return
        try:
            await self._ask(None)
        except StoreUnavailable:
            self._quiet_until = time.monotonic() + _QUIET_S

    async def look(self) -> None:
        """Asks for the policy version, along with the calls that come; after a refusal for no places in that session.

        That writes as a place does: a database that takes no changes can still be read.
        """
        refused = self._refused
        if refused is None:
            await self._ask(None)
            return
        try:
            await asyncio.to_thread(self._heads.take, {refused: 0})
        except SQLAlchemyError as error:
            raise _unavailable(error) from error
        self._refused = None

    def leave(self, session_id: str) -> None:
        """Nothing is held for a call."""

    def terms(self, session_id: str) -> Terms | None:
        """As the database answered when the call arrived, or the last time it did."""
        return self._terms.get(session_id)

    def made(self, session_id: str, terms: Terms) -> None:
        """The database may be away, or not know it yet."""
        _keep(self._terms, session_id, terms)

    def closed(self, session_id: str, status: SessionStatus) -> None:
        """The database knows; it may be away."""
        if status is SessionStatus.OPEN:
            self._closed.pop(session_id, None)
        else:
            _keep(self._closed, session_id, status)

    def restore(self, place: Place) -> None:
        """The database is asked for it with the others."""
        self._places.restore(place)

    def settle(self) -> None:
        """Gives all places that wait; returns when the database has. Raises `SQLAlchemyError`."""
        if self._places.now():
            self._take(Counter())

    def _take(self, counts: Counter[str]) -> tuple[dict[str, Given], int]:
        """The places that wait come before those that are asked for now."""
        with self._giving:
            waiting = self._places.now()
            ahead = Counter(place.session_id for place in waiting)
            given, version = self._heads.take(ahead + counts)
            first = {session_id: given[session_id].end - ahead[session_id] - counts[session_id] for session_id in ahead}
            self._places.give(waiting, first)
        self._quiet_until = 0.0
        return given, version

    async def _ask(self, session_id: str | None) -> _Answer | None:
        answered: _Answered = asyncio.get_running_loop().create_future()
        self._waiting.append(_Asked(session_id, answered))
        if self._asking is None:
            self._asking = asyncio.create_task(self._ask_all())
        try:
            async with asyncio.timeout(self._timeout):
                answer = await answered
        except TimeoutError as error:
            raise StoreUnavailable(f"the store did not answer within {self._timeout:g} s") from error
        if isinstance(answer, StoreUnavailable):
            raise answer
        return answer

    async def _ask_all(self) -> None:
        try:
            while self._waiting:
                asked, self._waiting = self._waiting, []
                await self._ask_for([one for one in asked if not one.answered.done()])
        finally:
            self._asking = None

    async def _ask_for(self, asked: Sequence[_Asked]) -> None:
        counts = Counter(one.session_id for one in asked if one.session_id is not None)
        try:
            given, version = await asyncio.to_thread(self._take, counts)
        except (SQLAlchemyError, StoreDamaged) as error:
            self._refused = next(iter(counts), self._refused)
            for one in asked:
                _tell(one, _unavailable(error))
            return
        self._refused = None if counts else self._refused
        self.policy_version = max(self.policy_version, version)
        places = {session_id: given[session_id].end - count for session_id, count in counts.items()}
        for one in asked:
            if one.session_id is None:
                _tell(one, None)
            else:
                _tell(one, _Answer(places[one.session_id], given[one.session_id]))
                places[one.session_id] += 1


def _unavailable(error: SQLAlchemyError | StoreDamaged) -> StoreUnavailable:
    why = reason(error) if isinstance(error, SQLAlchemyError) else str(error)
    return StoreUnavailable(f"the store cannot be read: {why}")


def _keep(known: OrderedDict[str, _T], session_id: str, value: _T) -> None:
    known[session_id] = value
    known.move_to_end(session_id)
    if len(known) > _KEPT:
        known.popitem(last=False)


def _tell(asked: _Asked, answer: _Answer | StoreUnavailable | None) -> None:
    if not asked.answered.done():
        asked.answered.set_result(answer)
