"""Storing whole sessions that come from elsewhere, each in one transaction: it is there with everything, or not at all."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING

from sqlalchemy import insert, select
from sqlalchemy.exc import DataError, IntegrityError

from polarproxy.errors import StoreConflict
from polarproxy.store import codec, rows
from polarproxy.store.bases import BaseIndex
from polarproxy.store.bodies import BodyBases, BodyRows
from polarproxy.store.checking import check_call, check_session, stored_row
from polarproxy.store.database import for_writing, reason
from polarproxy.store.entries import ContentDigest
from polarproxy.store.inserts import Inserts
from polarproxy.store.rewards import append
from polarproxy.store.schema import (
    blobs,
    bodies,
    body_blobs,
    call_facts,
    calls,
    completions,
    responses,
    sessions,
    token_texts,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from sqlalchemy import Connection, Engine, Table

    from polarproxy.model import Call
    from polarproxy.store.bases import Base
    from polarproxy.store.checking import Checked
    from polarproxy.store.entries import CallEntry, SessionEntry
    from polarproxy.store.rows import Row

_AT_ONCE = 64
"""Calls that are inserted together."""


class Receiver:
    """Stores sessions in a database; prompts and bodies build on what it stored before, as those of the proxy do."""

    def __init__(self, engine: Engine) -> None:
        self._engine = for_writing(engine)
        self._inserts = Inserts(engine.dialect)
        self._alive: set[str] = set()
        """Calls that cannot go away before this transaction ends."""
        self._forget()

    def _forget(self) -> None:
        self._bases = BaseIndex()
        self._bodies = BodyBases()

    def store(self, session: SessionEntry, entries: Iterable[CallEntry]) -> bytes:
        """Stores a session and returns the digest of its content.

        Raises `StoreConflict` when something of it is there already or the database cannot hold it, `BadArchive` when it
        contradicts itself; then nothing of it is stored.
        """
        digest = ContentDigest()
        self._alive.clear()
        try:
            with self._engine.begin() as connection:
                session = check_session(session)
                digest.add(session)
                _store_session(connection, session)
                waiting = iter(entries)
                while some := [check_call(session.session_id, entry) for entry in islice(waiting, _AT_ONCE)]:
                    for checked in some:
                        digest.add(checked.entry)
                    self._store_calls(connection, some)
        except BaseException as error:
            # What was taken back must not become the base of anything.
            self._forget()
            if isinstance(error, IntegrityError | DataError):
                raise StoreConflict(f"session {session.session_id} cannot be stored: {reason(error)}") from error
            raise
        return digest.value()

    def store_texts(self, model: str, texts: Sequence[tuple[int, bytes]]) -> None:
        """Stores spellings of a model's tokens; those that are known stay as they are."""
        found = [{"model": model, "token_id": token_id, "text": text} for token_id, text in texts]
        with self._engine.begin() as connection:
            self._inserts.run(connection, token_texts, found, once=True)

    def store_shared(self, table: Table, found: list[Row]) -> None:
        """Stores rows that belong to no session; those whose key is there stay as they are."""
        with self._engine.begin() as connection:
            self._inserts.run(connection, table, found, once=True)

    def _store_calls(self, connection: Connection, some: Sequence[Checked]) -> None:
        stored = [rows for checked in some for rows in self._body_rows(checked)]
        call_rows = [self._call_row(connection, checked) for checked in some]
        run = self._inserts.run
        run(connection, bodies, [one.body for one in stored], once=True)
        run(connection, blobs, [row for one in stored for row in one.blobs], once=True)
        run(connection, body_blobs, [row for one in stored for row in one.references], once=True)
        run(connection, calls, call_rows)
        run(connection, completions, [row for checked in some for row in checked.completions])
        run(connection, call_facts, [row for checked in some for row in checked.facts])
        run(connection, responses, [row for checked in some for row in checked.responses])

    def _body_rows(self, checked: Checked) -> Iterator[BodyRows]:
        session_id, body = checked.call.session_id, checked.entry.body
        if body is not None:
            stored = self._bodies.rows(session_id, body)
            self._bodies.add(session_id, stored, body)
            yield replace(stored, body=stored.body | {"data": codec.compress(stored.body["data"])})

    def _call_row(self, connection: Connection, checked: Checked) -> Row:
        call = checked.call
        base = self._base(connection, call)
        row = rows.call_row(call, base, checked.row["body_digest"])
        suffix = row["prompt_suffix"]
        self._bases.add(call, base)
        self._alive.add(call.call_id)
        return row | checked.row | {"prompt_suffix": None if suffix is None else codec.encode_ids(suffix)}

    def _base(self, connection: Connection, call: Call) -> Base | None:
        """What the prompt builds on. A call of another session may have been pruned since; if not, it is kept from it."""
        prompt = call.prompt_token_ids
        base = None if prompt is None else self._bases.find(call.session_id, prompt)
        if base is None or base.call_id in self._alive:
            return base
        found = (
            select(calls.c.call_id).where(calls.c.call_id == base.call_id).with_for_update(read=True, key_share=True)
        )
        if connection.execute(found).first() is None:
            self._forget()
            return None
        self._alive.add(base.call_id)
        return base


def _store_session(connection: Connection, session: SessionEntry) -> None:
    connection.execute(insert(sessions), [stored_row(session.row)])
    for given in session.rewards:
        append(connection, session.session_id, given.read(), given.recorded_at)
