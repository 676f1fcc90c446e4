"""Giving each request its place in its session, at the moment it arrives.

A SQLite file has one proxy, which counts in its memory. Proxies that share a PostgreSQL database count there.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from sqlalchemy.exc import SQLAlchemyError

from polarproxy.errors import BadSpool, StoreUnavailable
from polarproxy.model import SessionStatus
from polarproxy.store.database import reason
from polarproxy.store.places import Place
from polarproxy.store.shared_arrivals import SharedArrivals, session_closed
from polarproxy.store.terms import Terms

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from polarproxy.store.repository import Repository, SessionState
    from polarproxy.store.shared_arrivals import Spooled

_KEPT = 65_536


class Arrivals(Protocol):
    """Places of calls, and what every call must know of the decisions that were made for all."""

    policy_version: int
    """Version of the weights that sample now, as far as this process knows."""

    async def arrive(self, session_id: str) -> Place:
        """The place of a new call; raises `SessionClosed`, `StoreUnavailable`, `StoreDamaged`. Must be answered by `leave`."""

    async def catch_up(self) -> None:
        """Makes `policy_version` what it is for all proxies, if they can be asked."""

    async def look(self) -> None:
        """Asks the store as a new call would, and takes no place; raises `StoreUnavailable`, `StoreDamaged`."""

    def leave(self, session_id: str) -> None:
        """The call is stored, or lost for good."""

    def terms(self, session_id: str) -> Terms | None:
        """What a session was made with in which a call just arrived. None: the database is away, and it is not known."""

    def made(self, session_id: str, terms: Terms) -> None:
        """The session was just made, and is stored. Calls that named it before keep their ordinals."""

    def closed(self, session_id: str, status: SessionStatus) -> None:
        """The session's status changed, and is stored."""

    def restore(self, place: Place) -> None:
        """A place that an earlier process left waiting in the spool; before any call arrives. Raises `BadSpool`."""

    def settle(self) -> None:
        """Gives all places that wait. Called from any thread; raises `SQLAlchemyError`."""


def arrivals_of(engine: Engine, repository: Repository, timeout: float, spooled: Spooled | None = None) -> Arrivals:
    """For one proxy of this database; an answer that takes more than `timeout` seconds is none."""
    if engine.dialect.name == "postgresql":
        return SharedArrivals(engine, timeout, spooled)
    return OwnArrivals(repository, spooled)


@dataclass(slots=True)
class _Live:
    status: SessionStatus
    next_ordinal: int
    terms: Terms | None
    """None: it waits in the spool, where an earlier process left it."""
    under_way: int = 0


def _live(state: SessionState | None, *, waits: bool) -> _Live:
    """`waits`: something of the session is in the spool, and that may be what it was made with."""
    if state is None:
        return _Live(SessionStatus.OPEN, 0, None if waits else Terms())
    unknown = waits and state.terms == Terms()
    return _Live(state.status, state.next_ordinal, None if unknown else state.terms)


class OwnArrivals:
    """Next ordinals of the sessions that are alive, read from the store on first sight. No other proxy may write to it."""

    def __init__(self, repository: Repository, spooled: Spooled | None = None) -> None:
        self._repository = repository
        self._spooled = spooled
        self._live: OrderedDict[str, _Live] = OrderedDict()
        self._loading: dict[str, asyncio.Task[SessionState | None]] = {}
        self.policy_version = 0

    async def arrive(self, session_id: str) -> Place:
        """Counts in memory."""
        live = self._live.get(session_id)
        if live is None or (live.terms is None and not self._waits(session_id)):
            live = await self._look(session_id)
        if live.status is not SessionStatus.OPEN:
            raise session_closed(session_id, live.status)
        self._live.move_to_end(session_id)
        ordinal = live.next_ordinal
        live.next_ordinal += 1
        live.under_way += 1
        self._forget_oldest()
        return Place(session_id, ordinal)

    async def _look(self, session_id: str) -> _Live:
        """Reads the session, and makes it alive; raises `StoreUnavailable`, `StoreDamaged`."""
        # Looked at before the store is: what leaves the spool meanwhile is in the store.
        waits = self._waits(session_id)
        spooled = 0 if self._spooled is None else self._spooled.next_ordinal(session_id)
        read = _live(await self._load(session_id), waits=waits)
        live = self._live.get(session_id)
        if live is None:
            live = self._live[session_id] = read
            live.next_ordinal = max(live.next_ordinal, spooled)
        elif live.terms is None:
            live.terms = read.terms
        return live

    def _waits(self, session_id: str) -> bool:
        return self._spooled is not None and self._spooled.holds_session(session_id)

    async def catch_up(self) -> None:
        """There is nobody else."""

    async def look(self) -> None:
        """Reads of a session that is none."""
        await self._load("")

    def leave(self, session_id: str) -> None:
        """Sessions without calls under way may be forgotten."""
        live = self._live.get(session_id)
        if live is not None:
            live.under_way -= 1

    def terms(self, session_id: str) -> Terms | None:
        """From memory."""
        live = self._live.get(session_id)
        return None if live is None else live.terms

    def made(self, session_id: str, terms: Terms) -> None:
        """There is nothing to read of it."""
        self._live.setdefault(session_id, _Live(SessionStatus.OPEN, 0, terms)).terms = terms

    def closed(self, session_id: str, status: SessionStatus) -> None:
        """Remembers the status."""
        live = self._live.get(session_id)
        if live is not None:
            live.status = status

    def restore(self, place: Place) -> None:
        """None can wait here."""
        raise BadSpool(
            f"the spool holds a call of session {place.session_id} that has no place yet; only PostgreSQL can give it one"
        )

    def settle(self) -> None:
        """None waits."""

    async def _load(self, session_id: str) -> SessionState | None:
        """Reads the state once, however many requests wait for it; raises `StoreUnavailable`."""
        task = self._loading.get(session_id)
        if task is None:
            task = asyncio.create_task(asyncio.to_thread(self._repository.session_state, session_id))
            self._loading[session_id] = task
            task.add_done_callback(lambda _: self._loading.pop(session_id, None))
        try:
            return await asyncio.shield(task)
        except SQLAlchemyError as error:
            raise StoreUnavailable(f"the store cannot be read: {reason(error)}") from error

    def _forget_oldest(self) -> None:
        while len(self._live) > _KEPT:
            session_id, live = next(iter(self._live.items()))
            if live.under_way:
                return
            del self._live[session_id]
