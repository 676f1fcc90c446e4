"""One transaction for a group of items: the rows of all of them, and what they build on.

What later calls may build on is remembered, and asked for again before anything refers to it.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from sqlalchemy import select

from polarproxy.errors import StoreDamaged
from polarproxy.model import Call, Session
from polarproxy.store import codec, rows, values
from polarproxy.store.bases import BaseIndex
from polarproxy.store.bodies import BodyBases, BodyRows
from polarproxy.store.claims import claim
from polarproxy.store.inserts import Inserts
from polarproxy.store.items import Fact, NewCall
from polarproxy.store.reading import read_call
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
from polarproxy.store.standing import Pruned, bases_standing
from polarproxy.store.tokens import PromptReader

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection, Engine

    from polarproxy.store.items import Item

_RECENT = 4


class Recording:
    """Writes groups of items. For one thread."""

    def __init__(self, engine: Engine) -> None:
        """`engine` is one for writing."""
        self._engine = engine
        self._inserts = Inserts(engine.dialect)
        self.forget()

    def forget(self) -> None:
        """Nothing that was stored counts as known any more."""
        self._bases, self._bodies = BaseIndex(), BodyBases()

    def holds(self, call: Call) -> bool:
        """Whether this very call is stored."""
        with self._engine.begin() as connection:
            stored = read_call(connection, call.call_id)
        return stored is not None and stored.call == call

    def write(self, items: Sequence[Item]) -> None:
        """Returns when all are committed, or none; raises what the database does."""
        try:
            self._write_all(items)
        except Pruned:
            self.forget()
            self._write_all(items)

    def _write_all(self, items: Sequence[Item]) -> None:
        new = [item for item in items if isinstance(item, NewCall)]
        on_purpose = [item for item in items if isinstance(item, Session)]
        made = on_purpose + [item.session for item in new if not self._bases.knows(item.session.session_id)]
        facts = [item for item in items if isinstance(item, Fact)]
        with self._engine.begin() as connection:
            if made:
                self._inserts.run(connection, sessions, [rows.session_row(session) for session in made], once=True)
                claim(connection, on_purpose)
            if new:
                self._write_calls(connection, new)
            if facts:
                self._inserts.run(connection, call_facts, [_fact_row(fact) for fact in facts])
        for item in new:
            self._bases.add(item.call)
            if item.call.request_body:
                self._bodies.add(item.call.session_id, codec.digest(item.call.request_body), item.call.request_body)

    def _write_calls(self, connection: Connection, new: Sequence[NewCall]) -> None:
        stored: list[BodyRows] = []
        call_rows: list[rows.Row] = []
        completion_rows: list[rows.Row] = []
        text_rows: list[rows.Row] = []
        for item in new:
            call = item.call
            body_digest = None
            if call.request_body:
                stored.append(self._bodies.rows(call.session_id, call.request_body))
                body_digest = stored[-1].body["digest"]
            base = None
            if call.prompt_token_ids is not None:
                self._warm(connection, call)
                base = self._bases.find(call.session_id, call.prompt_token_ids)
            call_rows.append(rows.call_row(call, base, body_digest))
            completion_rows.extend(rows.completion_rows(call))
            model = call.served_model or ""
            text_rows.extend({"model": model, "token_id": key, "text": text} for key, text in item.texts.items())
        body_rows = [one.body for one in stored]
        response_rows = [item.response.row(item.call.call_id) for item in new if item.response is not None]
        with bases_standing(connection, call_rows, body_rows):
            _compress(body_rows, "data")
            self._inserts.run(connection, bodies, body_rows, once=True)
            self._inserts.run(connection, blobs, [row for one in stored for row in one.blobs], once=True)
            self._inserts.run(connection, body_blobs, [row for one in stored for row in one.references], once=True)
            _compress(call_rows, "prompt_suffix")
            _compress(completion_rows, "token_ids")
        self._inserts.run(connection, calls, call_rows)
        self._inserts.run(connection, completions, completion_rows)
        self._inserts.run(connection, token_texts, text_rows, once=True)
        self._inserts.run(connection, responses, response_rows)

    def _warm(self, connection: Connection, call: Call) -> None:
        """After a restart, the latest sequences of a session that goes on are read back."""
        if call.ordinal == 0 or self._bases.knows(call.session_id):
            return
        recent = select(calls).where(calls.c.session_id == call.session_id, calls.c.prompt_length.is_not(None))
        reader = PromptReader(connection)
        found = connection.execute(recent.order_by(calls.c.ordinal.desc()).limit(_RECENT)).mappings().all()
        for row in reversed(found):
            sampled = connection.execute(select(completions).where(completions.c.call_id == row["call_id"])).mappings()
            # What does not read back is no base; new calls must not suffer for it.
            with suppress(StoreDamaged):
                prompt = reader.prompt(row)
                completed = [values.read_completion(completion, prompt) for completion in sampled]
                self._bases.add(values.read_call(row, prompt, completed, b""))


def _compress(table: list[rows.Row], name: str) -> None:
    """Compresses this column of these rows in place."""
    for row in table:
        if row[name] is not None:
            row[name] = codec.compress(row[name])


def _fact_row(fact: Fact) -> rows.Row:
    return {"call_id": fact.call_id, "recorded_at": fact.recorded_at, "name": fact.name, "value": fact.value}
