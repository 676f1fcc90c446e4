"""One transaction for a group of items: the rows of all of them, and what they build on.

What later calls may build on is remembered, and asked for again before anything refers to it.
"""

from __future__ import annotations

from collections import defaultdict
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
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
from polarproxy.store.opened_files import OpenedFiles
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
from polarproxy.store.sound import reading_from, sound
from polarproxy.store.standing import Pruned, Seen, bases_standing, fail_unless_standing, in_one_breath
from polarproxy.store.tokens import PromptReader
from polarproxy.store.trial import Trial, try_out

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from sqlalchemy import Connection, Engine, Table

    from polarproxy.store.bases import Base
    from polarproxy.store.items import Item

_RECENT = 4
_FEW = 16
"""So many calls go to PostgreSQL in one round trip, row by row; more by COPY, which takes two for each table."""
_AFTERWARDS = (bodies, blobs, body_blobs, calls, completions, token_texts, responses, call_facts)
_SHARED = {bodies, blobs, body_blobs, token_texts}
"""What others may have stored as well."""


class Recording:
    """Writes groups of items. For one thread."""

    def __init__(self, engine: Engine) -> None:
        """`engine` is one for writing."""
        self._engine = engine
        self._connection: Connection | None = None
        self.files = OpenedFiles(engine, self._let_go)
        self._inserts = Inserts(engine.dialect)
        self.forget()

    def forget(self) -> None:
        """Nothing that was stored counts as known any more."""
        self._bases, self._bodies, self._seen = BaseIndex(), BodyBases(), Seen()

    def close(self) -> None:
        """Gives the connection back. It can go on all the same."""
        self._give_back()
        self.files.close()

    def _give_back(self) -> None:
        connection, self._connection, self._seen = self._connection, None, Seen()
        if connection is not None:
            connection.close()

    def _let_go(self) -> None:
        """Closes the connections that nobody uses."""
        self._give_back()
        self._engine.dispose()

    @contextmanager
    def _transaction(self) -> Iterator[Connection]:
        """SQLite's connection is kept: to take one from the pool costs as much as to store a call. One to a server may have
        broken meanwhile, which the pool finds out when it gives it out."""
        if self._engine.dialect.name != "sqlite":
            with self._engine.begin() as connection:
                yield connection
            return
        self._connection = connection = self._connection or self._engine.connect()
        try:
            with connection.begin():
                yield connection
        except BaseException:
            # What it has in its memory may be what went wrong.
            connection.invalidate()
            self._give_back()
            raise

    def holds(self, call: Call) -> bool:
        """Whether this very call is stored."""
        with self._engine.begin() as connection:
            stored = read_call(connection, call.call_id)
        return stored is not None and stored.call == call

    def write(self, items: Sequence[Item | Trial]) -> None:
        """Returns when all are committed, or none; raises what the database does."""
        try:
            self._write_all(items)
        except Pruned:
            self.forget()
            self._write_all(items)

    def _write_all(self, items: Sequence[Item | Trial]) -> None:
        self.files.require_file()
        if self._connection is None:
            # A new one would have another log than those that there are.
            self.files.require_log()
        group = self._prepared(items)
        with self._transaction() as connection:
            self._insert(connection, group)
        # It may have been removed since the last group: nobody is told of a commit before what holds it has a name.
        self.files.require_log()
        self._seen.add(group.tables[calls], group.tables[bodies])
        for call, base, body in group.calls:
            self._bases.add(call, base)
            if body is not None:
                self._bodies.add(call.session_id, body, call.request_body)

    def _prepared(self, items: Sequence[Item | Trial]) -> _Group:
        """The rows of all of them. None of them is known yet, so that they are stored together or not at all."""
        group = _Group()
        for item in items:
            if isinstance(item, Fact):
                group.add(call_facts, _fact_row(item))
            elif isinstance(item, Session):
                group.on_purpose.append(item)
            elif isinstance(item, Trial):
                group.on_trial = True
        # A session that was made on purpose says more than one that a call made.
        for session in group.on_purpose:
            group.add(sessions, rows.session_row(session))
        for item in items:
            if isinstance(item, NewCall):
                self._prepare_call(group, item)
        # One kind after the other: what an encoder works with stays near it.
        _encode(group.tables[bodies], "data", lambda many: [*map(codec.compress, many)])
        _encode(group.tables[calls], "prompt_suffix", codec.encode_all_ids)
        _encode(group.tables[completions], "token_ids", codec.encode_all_ids)
        return group

    def _prepare_call(self, group: _Group, item: NewCall) -> None:
        call, body, base = item.call, None, None
        if not self._bases.knows(call.session_id):
            self._warm(call)
            group.add(sessions, rows.session_row(item.session))
        if call.request_body:
            body = self._bodies.rows(call.session_id, call.request_body)
            group.add(bodies, body.body)
            group.add(blobs, *body.blobs)
            group.add(body_blobs, *body.references)
        if call.prompt_token_ids is not None:
            base = self._bases.find(call.session_id, call.prompt_token_ids)
        group.add(calls, rows.call_row(call, base, None if body is None else body.body["digest"]))
        group.add(completions, *rows.completion_rows(call))
        for token_id, text in item.texts.items():
            group.add(token_texts, {"model": call.served_model or "", "token_id": token_id, "text": text})
        if item.response is not None:
            group.add(responses, item.response.row(call.call_id))
        group.calls.append((call, base, body))

    def _insert(self, connection: Connection, group: _Group) -> None:
        run, made = self._inserts.run, group.tables
        if group.on_trial:
            try_out(connection)
        if connection.dialect.name == "postgresql" and len(group.calls) <= _FEW and not group.on_purpose:
            with in_one_breath(connection):
                run(connection, sessions, made[sessions], once=True, few=True)
                fail_unless_standing(connection, made[calls], made[bodies])
                for table in _AFTERWARDS:
                    run(connection, table, made[table], once=table in _SHARED, few=True)
            return
        run(connection, sessions, made[sessions], once=True)
        claim(connection, group.on_purpose)
        if group.calls:
            with bases_standing(connection, made[calls], made[bodies], self._seen):
                for table in (bodies, blobs, body_blobs):
                    run(connection, table, made[table], once=True)
            run(connection, calls, made[calls])
            run(connection, completions, made[completions])
            run(connection, token_texts, made[token_texts], once=True)
            run(connection, responses, made[responses])
        run(connection, call_facts, made[call_facts])

    def _warm(self, call: Call) -> None:
        """After a restart, the latest sequences of a session that goes on are read back."""
        if call.ordinal == 0 or call.prompt_token_ids is None:
            return
        recent = select(calls).where(calls.c.session_id == call.session_id, calls.c.prompt_length.is_not(None))
        # What does not read back is no base; new calls must not suffer for it.
        with suppress(StoreDamaged), reading_from(self._engine) as connection:
            reader = PromptReader(connection)
            found = connection.execute(recent.order_by(calls.c.ordinal.desc()).limit(_RECENT)).mappings().all()
            for row in reversed(found):
                sampled = connection.execute(select(completions).where(completions.c.call_id == row["call_id"]))
                with suppress(StoreDamaged), sound():
                    prompt = reader.prompt(row)
                    completed = [values.read_completion(completion, prompt) for completion in sampled.mappings()]
                    self._bases.add(values.read_call(row, prompt, completed, b""))


@dataclass(slots=True)
class _Group:
    """What is inserted together."""

    tables: defaultdict[Table, list[rows.Row]] = field(default_factory=lambda: defaultdict(list))
    on_purpose: list[Session] = field(default_factory=list)
    on_trial: bool = False
    """Whether it is to be found out that it can be committed."""
    calls: list[tuple[Call, Base | None, BodyRows | None]] = field(default_factory=list)
    """With what their prompts build on, and how their bodies are stored. None: on nothing; there is none."""

    def add(self, table: Table, *made: rows.Row) -> None:
        self.tables[table].extend(made)


def _encode(table: list[rows.Row], name: str, encode: Callable[[list[bytes]], list[bytes]]) -> None:
    """Makes this column of these rows what is stored."""
    given = [row for row in table if row[name] is not None]
    for row, encoded in zip(given, encode([row[name] for row in given]), strict=True):
        row[name] = encoded


def _fact_row(fact: Fact) -> rows.Row:
    return {"call_id": fact.call_id, "recorded_at": fact.recorded_at, "name": fact.name, "value": fact.value}
