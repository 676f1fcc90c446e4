"""From the spool into the database: in order, and each record once, however often it is tried.

The database knows what it has: a call by its id, a fact by its call, name and time. A call that is there already was
committed, and only the word of it got lost.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sqlalchemy import select
from sqlalchemy.exc import SQLAlchemyError

from polarproxy.errors import DamagedRecord, StoreConflict, StoreDamaged, StoreUnavailable, Unstorable
from polarproxy.model import Session
from polarproxy.store.inbox import MAX_GROUP
from polarproxy.store.items import Fact, NewCall
from polarproxy.store.reading import read_call
from polarproxy.store.schema import call_facts, calls
from polarproxy.store.sound import reading_from, sound

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Mapping, Sequence
    from concurrent.futures import Future
    from datetime import datetime

    from sqlalchemy import Connection, Engine

    from polarproxy.store.items import Item
    from polarproxy.store.keeper import Keeper
    from polarproxy.store.spool import Spool
    from polarproxy.store.spool_index import Held


_IN_TURN = (Session, NewCall, Fact)


@dataclass(frozen=True, slots=True)
class _Ready:
    held: Held
    item: Item


class Drainer:
    """Moves records from a spool to a writer. For one thread."""

    def __init__(self, spool: Spool, writer: Keeper, engine: Engine, settle: Callable[[], None]) -> None:
        """`settle` gives a place to every call that waits for one; it may raise `SQLAlchemyError`."""
        self._spool = spool
        self._writer = writer
        self._engine = engine
        self._settle = settle

    def some(self) -> bool:
        """Stores the oldest records. Whether the database took them, or said why it takes one of them never."""
        try:
            ready = self._missing(self._readable(self._spool.oldest(MAX_GROUP)))
            # A call must not make its session anew, nor a fact come before its call.
            return all(self._store([one for one in ready if isinstance(one.item, kind)]) for kind in _IN_TURN)
        except (SQLAlchemyError, StoreUnavailable):
            return False

    def _store(self, ready: Sequence[_Ready]) -> bool:
        while ready:
            submitted = self._submit(ready)
            errors = [(held, stored.exception()) for held, stored in submitted]
            self._spool.done([held for held, error in errors if error is None])
            for held, error in errors:
                if isinstance(error, StoreConflict | Unstorable):
                    self._spool.refuse(held, str(error))
            if not all(error is None or isinstance(error, StoreConflict | Unstorable) for _, error in errors):
                return False
            ready = ready[len(submitted) :]
        return True

    def _submit(self, ready: Sequence[_Ready]) -> list[tuple[Held, Future[None]]]:
        """As many as the writer has room for; raises `StoreUnavailable` when it has none.

        What it took is waited for: what is asked for again while it is under way, the database does not know yet.
        """
        submitted: list[tuple[Held, Future[None]]] = []
        for one in ready:
            try:
                submitted.append((one.held, self._writer.submit(one.item)))
            except StoreUnavailable:
                if not submitted:
                    raise
                break
        return submitted

    def _readable(self, held: Sequence[Held]) -> list[_Ready]:
        found = []
        for one in held:
            try:
                found.append(_Ready(one, self._spool.read(one)))
            except DamagedRecord as error:
                self._spool.refuse(one, str(error))
        return found

    def _missing(self, ready: Sequence[_Ready]) -> list[_Ready]:
        """What the database does not have, each call with its place."""
        with reading_from(self._engine) as connection:
            places = _places(connection, [one.item.call.call_id for one in ready if isinstance(one.item, NewCall)])
            facts = _known_facts(connection, [one.item for one in ready if isinstance(one.item, Fact)])
            there, unsure = set(), {}
            for one in ready:
                try:
                    with sound():
                        known = _is_there(connection, one.item, places, facts)
                    if known:
                        there.add(one.held.key)
                except StoreDamaged as error:
                    unsure[one.held.key] = str(error)
        self._spool.done([one.held for one in ready if one.held.key in there])
        for one in ready:
            if one.held.key in unsure:
                why = f"what the database has of it cannot be read: {unsure[one.held.key]}"
                self._spool.refuse(one.held, why)
        ready = [one for one in ready if one.held.key not in there and one.held.key not in unsure]
        # Also for calls that are under way: with a place they need not go through the spool when they end.
        self._settle()
        return [_Ready(one.held, placed(one.item)) for one in ready]


def _is_there(
    connection: Connection, item: Item, places: Mapping[str, int], facts: Container[tuple[str, str, datetime]]
) -> bool:
    if isinstance(item, Fact):
        return (item.call_id, item.name, item.recorded_at) in facts
    if not isinstance(item, NewCall) or item.call.call_id not in places:
        return False
    call = item.call if item.place is None else replace(item.call, ordinal=places[item.call.call_id])
    stored = read_call(connection, call.call_id)
    return stored is not None and stored.call == call


def placed(item: Item) -> Item:
    """The item with its call at the place that it was given."""
    if not isinstance(item, NewCall) or item.place is None:
        return item
    return replace(item, call=replace(item.call, ordinal=item.place.ordinal), place=None)


def _places(connection: Connection, call_ids: Sequence[str]) -> dict[str, int]:
    if not call_ids:
        return {}
    query = select(calls.c.call_id, calls.c.ordinal).where(calls.c.call_id.in_(call_ids))
    return {row.call_id: row.ordinal for row in connection.execute(query)}


def _known_facts(connection: Connection, facts: Sequence[Fact]) -> set[tuple[str, str, datetime]]:
    if not facts:
        return set()
    query = select(call_facts.c.call_id, call_facts.c.name, call_facts.c.recorded_at)
    query = query.where(call_facts.c.call_id.in_([fact.call_id for fact in facts]))
    return {(call_id, name, at) for call_id, name, at in connection.execute(query)}
