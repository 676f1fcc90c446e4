"""One thread that writes, and commits many calls at once: acknowledged means committed, at the price of one flush a group.

The queue is bounded. When it is full, or when a group cannot be committed, the waiting requests are told so; the thread
goes on with the next group, so that a disk that has room again or a lock that was released needs no restart.
"""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from sqlalchemy import select
from sqlalchemy.exc import DBAPIError, IntegrityError, InterfaceError, InternalError, OperationalError
from sqlalchemy.exc import TimeoutError as NoConnection

from polarproxy.errors import StoreConflict, StoreDamaged, StoreUnavailable, Unstorable
from polarproxy.model import Call, Session
from polarproxy.store import codec, rows
from polarproxy.store.bases import BaseIndex
from polarproxy.store.bodies import BodyBases, BodyRows
from polarproxy.store.claims import claim
from polarproxy.store.database import for_writing, reason, was_rolled_back
from polarproxy.store.inbox import Done, Inbox, settle, wait_for
from polarproxy.store.inserts import Inserts
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
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from sqlalchemy import Connection, Engine

    from polarproxy.store.places import Place
    from polarproxy.store.responses import StoredResponse

TROUBLE_S = 10.0
"""How long a failed commit counts against the store's readiness when nothing has been written since."""
_RECENT = 4

_OUT_OF_ORDER = (OperationalError, InterfaceError, InternalError, NoConnection)
"""The database itself is in trouble (locked, full, unreachable, read-only, silent), whatever it was given."""


@dataclass(frozen=True, slots=True)
class NewCall:
    """A call to store, with the session it belongs to, which is made if it is new."""

    call: Call
    session: Session
    texts: Mapping[int, bytes]
    """Spellings of token ids that this process has not stored yet."""
    response: StoredResponse | None = None
    """What a client may ask for again (OpenAI Responses). None: nothing."""
    place: Place | None = None
    """Of a call that came while the database was away; it counts, not the call's ordinal. None: that one counts."""


@dataclass(frozen=True, slots=True)
class Fact:
    """Something that became known about a stored call."""

    call_id: str
    recorded_at: datetime
    name: str
    value: str


Item: TypeAlias = NewCall | Fact | Session
_Waiting: TypeAlias = "tuple[Item, Done]"


class Writer:
    """Stores calls, facts and sessions; every method may be called from any thread."""

    def __init__(self, engine: Engine, queue_size: int = 4096) -> None:
        self._engine = for_writing(engine)
        # Nobody waits for a fact.
        self._inbox: Inbox[Item] = Inbox(queue_size, can_wait=lambda item: isinstance(item, Fact))
        self._inserts = Inserts(engine.dialect)
        self._forget()
        self._thread = threading.Thread(target=self._run, name="polarproxy-writer", daemon=True)
        self._trouble: tuple[float, str] | None = None
        self.failed = 0
        """Items that could not be stored since the start."""
        self._thread.start()

    def submit(self, item: Item) -> Future[None]:
        """Queues an item. The future ends when it is committed; raises `StoreUnavailable` when the queue is full."""
        done: Future[None] = Future()
        self._put(item, done)
        return done

    def note(self, item: Item) -> None:
        """Queues an item for which nobody waits; raises `StoreUnavailable` when the queue is full."""
        self._put(item, None)

    async def write(self, item: Item, timeout: float) -> None:  # noqa: ASYNC109  (the caller's setting, by name)
        """Returns when the item is committed.

        Raises `StoreUnavailable` when it was not within `timeout` seconds (it may still be), `StoreConflict` when another
        call has its id or its place. The same call again is stored once.
        """
        committed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._put(item, committed)
        await wait_for(committed, timeout)

    def _put(self, item: Item, done: Done) -> None:
        try:
            self._inbox.put(item, done)
        except StoreUnavailable:
            self.failed += 1
            raise

    @property
    def waiting(self) -> int:
        """Items in the queue."""
        return self._inbox.waiting

    @property
    def trouble(self) -> str | None:
        """Why nothing could be committed lately. None: it could, or it is long enough ago to be tried again."""
        if self._trouble is None or time.monotonic() - self._trouble[0] > TROUBLE_S:
            return None
        return self._trouble[1]

    @property
    def full(self) -> bool:
        """Whether a new call would be refused."""
        return self._inbox.full

    def close(self, timeout: float = 30.0) -> None:
        """Commits what is queued and ends the thread."""
        if self._inbox.close():
            self._thread.join(timeout)

    def _run(self) -> None:
        ended = False
        while not ended:
            group, ended = self._inbox.next_group()
            if group:
                self._commit(group)

    def _commit(self, group: list[_Waiting]) -> None:
        try:
            self._write([item for item, _ in group])
        except _OUT_OF_ORDER as error:
            if isinstance(error, DBAPIError) and was_rolled_back(error):
                self._commit_one_by_one(group)
                return
            self._stumble(_said(error))
            for _, done in group:
                self._fail(done, StoreUnavailable(f"the store could not commit: {_said(error)}"))
        except Exception:  # noqa: BLE001  (one item is at fault; it ends neither this thread nor the other items)
            self._commit_one_by_one(group)
        else:
            self._trouble = None
            settle(done for _, done in group)

    def _commit_one_by_one(self, group: list[_Waiting]) -> None:
        """A group was refused because of one of its items: the others must not suffer for it."""
        for item, done in group:
            try:
                self._write_once(item)
            except Exception as error:  # noqa: BLE001  (whatever is wrong with the item, its request is told)
                self._refuse(item, done, error)
            else:
                self._trouble = None
                settle([done])

    def _write_once(self, item: Item) -> None:
        """Nothing is to be done for a call that is stored already: it was committed, and only the word of it got lost."""
        try:
            self._write([item])
        except IntegrityError:
            if not isinstance(item, NewCall):
                raise
            with self._engine.begin() as connection:
                stored = read_call(connection, item.call.call_id)
            if stored is None or stored.call != item.call:
                raise

    def _refuse(self, item: Item, done: Done, error: Exception) -> None:
        why = _said(error)
        if isinstance(error, StoreConflict):
            self._fail(done, error)
        elif isinstance(error, IntegrityError):
            self._fail(done, StoreConflict(f"{_name(item)} contradicts what is stored: {why}"))
        elif isinstance(error, _OUT_OF_ORDER):
            self._stumble(why)
            self._fail(done, StoreUnavailable(f"{_name(item)} cannot be stored: {why}"))
        else:
            self._fail(done, Unstorable(f"{_name(item)} cannot be stored: {why}"))

    def _stumble(self, why: str) -> None:
        """The database that comes back may be an older one (a standby): what was stored is no base for what comes."""
        self._trouble = (time.monotonic(), why)
        self._forget()

    def _forget(self) -> None:
        self._bases, self._bodies = BaseIndex(), BodyBases()

    def _fail(self, done: Done, error: Exception) -> None:
        self.failed += 1
        settle([done], error)

    def _write(self, items: Sequence[Item]) -> None:
        try:
            self._write_all(items)
        except Pruned:
            self._forget()
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
                completed = [rows.read_completion(completion, prompt) for completion in sampled]
                self._bases.add(rows.read_call(row, prompt, completed, b""))


def _said(error: Exception) -> str:
    return reason(error) if isinstance(error, DBAPIError) else f"{type(error).__name__}: {error}"


def _name(item: Item) -> str:
    if isinstance(item, NewCall):
        return f"call {item.call.call_id}"
    if isinstance(item, Fact):
        return f"{item.name} of call {item.call_id}"
    return f"session {item.session_id}"


def _compress(table: list[rows.Row], name: str) -> None:
    """Compresses this column of these rows in place."""
    for row in table:
        if row[name] is not None:
            row[name] = codec.compress(row[name])


def _fact_row(fact: Fact) -> rows.Row:
    return {"call_id": fact.call_id, "recorded_at": fact.recorded_at, "name": fact.name, "value": fact.value}
