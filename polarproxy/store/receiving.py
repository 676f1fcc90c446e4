"""Storing whole sessions that come from elsewhere, each in one transaction: it is there with everything, or not at all."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from sqlalchemy import insert, select
from sqlalchemy.exc import DataError, IntegrityError

from polarproxy.errors import BadArchive, StoreConflict, StoreDamaged
from polarproxy.model import Call, TokenIds
from polarproxy.store import codec, rows
from polarproxy.store.bases import BaseIndex
from polarproxy.store.bodies import BodyBases
from polarproxy.store.database import for_writing
from polarproxy.store.entries import CALL_COLUMNS, COMPLETION_COLUMNS, RESPONSE_COLUMNS, SESSION_COLUMNS, ContentDigest
from polarproxy.store.inserts import Inserts
from polarproxy.store.schema import (
    UTCDateTime,
    bodies,
    call_facts,
    calls,
    completions,
    responses,
    reward_components,
    rewards,
    sessions,
    token_texts,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from sqlalchemy import Column, Connection, Engine, Table

    from polarproxy.store.archive import TextsEntry
    from polarproxy.store.bases import Base
    from polarproxy.store.entries import CallEntry, RewardEntry, SessionEntry
    from polarproxy.store.rows import Row

_AT_ONCE = 64
"""Calls that are inserted together."""


class Receiver:
    """Stores sessions in a database; prompts and bodies build on what it stored before, as those of the proxy do."""

    def __init__(self, engine: Engine) -> None:
        self._engine = for_writing(engine)
        self._inserts = Inserts(engine.dialect)
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
        try:
            with self._engine.begin() as connection:
                digest.add(session)
                self._store_session(connection, session)
                for some in _batches(entries):
                    for entry in some:
                        digest.add(entry)
                    self._store_calls(connection, session.session_id, some)
        except BaseException as error:
            # What was taken back must not become the base of anything.
            self._forget()
            if isinstance(error, IntegrityError | DataError):
                raise StoreConflict(f"session {session.session_id} cannot be stored: {error.orig}") from error
            raise
        return digest.value()

    def store_texts(self, entry: TextsEntry) -> None:
        """Stores spellings of tokens; those that are known stay as they are."""
        found = [{"model": entry.model, "token_id": token_id, "text": text} for token_id, text in entry.texts]
        with self._engine.begin() as connection:
            self._inserts.run(connection, token_texts, found, once=True)

    def _store_session(self, connection: Connection, session: SessionEntry) -> None:
        row = checked(sessions, SESSION_COLUMNS, session.row)
        connection.execute(insert(sessions), [row])
        for reward in session.rewards:
            _store_reward(connection, session.session_id, reward)

    def _store_calls(self, connection: Connection, session_id: str, entries: Sequence[CallEntry]) -> None:
        made = [self._read(session_id, entry) for entry in entries]
        body_rows, call_rows, sampled = [], [], []
        for entry, (call, completed) in zip(entries, made, strict=True):
            body_digest = None
            if entry.body is not None:
                body_rows.append(self._bodies.row(session_id, entry.body))
                body_digest = body_rows[-1]["digest"]
                self._bodies.add(session_id, codec.digest(entry.body), entry.body)
            if entry.row["body_digest"] != body_digest:
                raise BadArchive(f"call {call.call_id}: its body is not the one that its digest names")
            row = rows.call_row(call, self._base(connection, call), body_digest)
            call_rows.append(row | entry.row)
            sampled.extend({"call_id": call.call_id} | completion for completion in completed)
            self._bases.add(call)
        for row in body_rows:
            row["data"] = codec.compress(row["data"])
        for row in call_rows:
            if row["prompt_suffix"] is not None:
                row["prompt_suffix"] = codec.compress(row["prompt_suffix"])
        run = self._inserts.run
        run(connection, bodies, body_rows, once=True)
        run(connection, calls, call_rows)
        run(connection, completions, sampled)
        run(connection, call_facts, [row for entry in entries for row in _fact_rows(entry)])
        run(connection, responses, [row for entry in entries for row in _response_rows(entry)])

    def _base(self, connection: Connection, call: Call) -> Base | None:
        """What the prompt builds on. A call of another session may have been pruned since; this one keeps it alive."""
        if call.prompt_token_ids is None:
            return None
        base = self._bases.find(call.session_id, call.prompt_token_ids)
        if base is None:
            return None
        alive = select(calls.c.call_id).where(calls.c.call_id == base.call_id).with_for_update(read=True, key_share=True)
        if connection.execute(alive).first() is None:
            self._forget()
            return None
        return base

    def _read(self, session_id: str, entry: CallEntry) -> tuple[Call, list[Row]]:
        """The call that an entry describes, and the rows of its completions; raises `BadArchive`."""
        row = checked(calls, CALL_COLUMNS, entry.row)
        if row["session_id"] != session_id:
            raise BadArchive(f"call {entry.call_id} stands among those of session {session_id}")
        prompt = None if entry.prompt is None else TokenIds(entry.prompt)
        length, digest = (None, None) if prompt is None else (len(prompt), codec.digest(prompt.raw))
        if (row["prompt_length"], row["prompt_digest"]) != (length, digest):
            raise BadArchive(f"call {entry.call_id}: its prompt does not match its length and digest")
        completed = [checked(completions, COMPLETION_COLUMNS, completion) for completion in entry.completions]
        for completion in completed:
            completion["token_ids"] = codec.compress(completion["token_ids"])
        named = [completion | {"call_id": entry.call_id} for completion in completed]
        try:
            sampled = [rows.read_completion(completion, prompt) for completion in named]  # type: ignore[arg-type]
            return rows.read_call(row, prompt, sampled, entry.body or b""), completed  # type: ignore[arg-type]
        except StoreDamaged as error:
            raise BadArchive(str(error)) from error


def checked(table: Table, names: Sequence[str], row: Row) -> Row:
    """The row with all its columns, in their order; raises `BadArchive` for a value that no such column holds."""
    for unknown in row.keys() - set(names):
        raise BadArchive(f"{table.name} has no column {unknown!r} in this version of polarproxy; a newer one wrote it")
    return {name: _fitting(table.c[name], row.get(name)) for name in names}


def _fitting(column: Column[Any], value: Any) -> Any:
    if value is None:
        if not column.nullable:
            raise BadArchive(f"{column.table.name}.{column.name} is missing")
        return None
    kind = datetime if isinstance(column.type, UTCDateTime) else column.type.python_type
    if not isinstance(value, kind):
        raise BadArchive(f"{column.table.name}.{column.name} is {type(value).__name__}, not {kind.__name__}")
    return value


def _batches(entries: Iterable[CallEntry]) -> Iterator[list[CallEntry]]:
    batch: list[CallEntry] = []
    for entry in entries:
        batch.append(entry)
        if len(batch) == _AT_ONCE:
            yield batch
            batch = []
    if batch:
        yield batch


def _fact_rows(entry: CallEntry) -> Iterator[Row]:
    for recorded_at, name, value in entry.facts:
        yield {"call_id": entry.call_id, "recorded_at": recorded_at, "name": name, "value": value}


def _response_rows(entry: CallEntry) -> Iterator[Row]:
    for response in entry.responses:
        row = checked(responses, RESPONSE_COLUMNS, response)
        packed = {"input": codec.compress(row["input"]), "reply": codec.compress(row["reply"])}
        yield {"call_id": entry.call_id} | row | packed


def _store_reward(connection: Connection, session_id: str, reward: RewardEntry) -> None:
    added = insert(rewards).values(session_id=session_id, recorded_at=reward.recorded_at, value=reward.value)
    reward_id = connection.execute(added.returning(rewards.c.reward_id)).scalar_one()
    if reward.components:
        parts = [
            {"reward_id": reward_id, "place": place, "name": name, "value": value}
            for place, (name, value) in enumerate(reward.components)
        ]
        connection.execute(insert(reward_components), parts)
