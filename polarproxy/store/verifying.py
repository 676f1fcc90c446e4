"""Reading everything again, whatever became of its rows, and saying what is not as it was written."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from sqlalchemy import and_, exists, literal_column, select, text
from sqlalchemy.exc import DatabaseError, DBAPIError

from polarproxy.errors import StoreDamaged
from polarproxy.store import codec, responses, rewards, values
from polarproxy.store.blobs import held
from polarproxy.store.bodies import BodyReader
from polarproxy.store.checking import misfit
from polarproxy.store.facts import known_of
from polarproxy.store.schema import bodies, body_blobs, calls, completions, metadata, sessions
from polarproxy.store.schema import responses as stored_responses
from polarproxy.store.sound import is_no_text, reading_from
from polarproxy.store.text import unescape
from polarproxy.store.tokens import PromptReader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sqlalchemy import Column, ColumnElement, Connection, Engine, ForeignKeyConstraint, RowMapping, Select, Table


@dataclass(frozen=True, slots=True)
class Damage:
    """A stored record that does not read back as it was written."""

    where: str
    what: str


def store_damage(engine: Engine) -> Iterator[Damage]:
    """What does not match: by session, oldest first, and in a session by call; then rows that belong to nothing, and
    images that nothing keeps from being pruned."""
    with reading_from(engine) as connection:
        ids = _as_stored(connection, sessions.c.session_id, order=(sessions.c.created_at, sessions.c.session_id))
    for session_id in ids:
        if isinstance(session_id, bytes):
            yield _nameless(f"session {session_id!r}")
            continue
        with engine.begin() as connection:
            yield from session_damage(connection, session_id)
    with engine.begin() as connection:
        for table in metadata.sorted_tables:
            for constraint in sorted(table.foreign_key_constraints, key=lambda one: str(one.name)):
                yield from _found(f"table {table.name}", partial(_orphans, connection, constraint))
        yield from _found("table bodies", partial(_loose_images, connection))


def _found(where: str, look: Callable[[], Iterator[Damage]]) -> list[Damage]:
    """What was found, up to where it could not be read."""
    damages: list[Damage] = []
    what = _wrong(lambda: damages.extend(look()))
    return damages if what is None else [*damages, Damage(where, what)]


def session_damage(connection: Connection, session_id: str) -> Iterator[Damage]:
    """Re-derives every digest and length of a session; yields what does not match: its own rows, its calls by ordinal."""
    what = _wrong(partial(_read_session, connection, session_id))
    if what is not None:
        yield Damage(f"session {session_id}", what)
    yield from _found(f"calls of session {session_id}", partial(_call_damage, connection, session_id))


def _call_damage(connection: Connection, session_id: str) -> Iterator[Damage]:
    prompts, requests = PromptReader(connection), BodyReader(connection)
    of_session = calls.c.session_id == session_id
    for call_id in _as_stored(connection, calls.c.call_id, of_session, order=(calls.c.ordinal,)):
        if isinstance(call_id, bytes):
            yield _nameless(f"call {call_id!r} of session {session_id}")
            continue
        where = f"call {call_id} of session {session_id}"
        parts = (
            partial(_read_call, connection, prompts, call_id),
            partial(_read_body, connection, requests, call_id),
            partial(_read_responses, connection, call_id),
        )
        yield from (Damage(where, what) for what in map(_wrong, parts) if what is not None)


def _as_stored(
    connection: Connection, column: Column[str], *conditions: ColumnElement[bool], order: tuple[Column[Any], ...]
) -> list[str | bytes]:
    """The values of a key: texts as they were given, and of whatever else there is the bytes."""
    name = f"{column.table.name}.{column.name}"
    # SQLite's driver reads no text that is not UTF-8, and a key may be no text at all.
    asked = f"typeof({name}) = 'text', CAST({name} AS BLOB)" if connection.dialect.name == "sqlite" else f"TRUE, {name}"
    query: Select[Any] = select(text(asked)).select_from(column.table).where(*conditions).order_by(*order)
    return [_key(value) if is_text else value for is_text, value in connection.execute(query)]


def _key(value: str | bytes) -> str | bytes:
    try:
        return unescape(value if isinstance(value, str) else value.decode())
    except UnicodeDecodeError:
        return value


def _nameless(where: str) -> Damage:
    return Damage(where, "its name is a value that nobody wrote, and nothing can be found by it")


def _read_session(connection: Connection, session_id: str) -> None:
    row = connection.execute(select(sessions).where(sessions.c.session_id == session_id)).mappings().one()
    _require_fitting(sessions, row)
    for given in rewards.history(connection, session_id):
        values.read_session(row, given.reward)
    values.read_session(row, None)


def _require_fitting(table: Table, row: RowMapping) -> None:
    """Raises `StoreDamaged` when a value is of another kind than its column: SQLite takes any."""
    for column in table.columns:
        wrong = misfit(column, row[column.name])
        if wrong is not None:
            raise StoreDamaged(wrong)


def _read_body(connection: Connection, requests: BodyReader, call_id: str) -> None:
    digest = select(calls.c.body_digest).where(calls.c.call_id == call_id)
    requests.body(connection.execute(digest).scalar_one())


def _read_call(connection: Connection, prompts: PromptReader, call_id: str) -> None:
    row = connection.execute(select(calls).where(calls.c.call_id == call_id)).mappings().one()
    _require_fitting(calls, row)
    prompt = prompts.prompt(row)
    by_choice = select(completions).where(completions.c.call_id == call_id).order_by(completions.c.choice_index)
    sampled = connection.execute(by_choice).mappings().all()
    for completion in sampled:
        _require_fitting(completions, completion)
    values.read_call(row, prompt, [values.read_completion(completion, prompt) for completion in sampled], b"")
    known_of(connection, select(calls.c.call_id).where(calls.c.call_id == call_id))


def _read_responses(connection: Connection, call_id: str) -> None:
    of_call = select(stored_responses.c.response_id).where(stored_responses.c.call_id == call_id)
    for response_id in connection.execute(of_call).scalars().all():
        if responses.find(connection, response_id) is None:
            raise StoreDamaged(f"its stored response {response_id!r} cannot be found by its name")


def _wrong(read: Callable[[], object]) -> str | None:
    """What keeps it from being read. None: nothing."""
    try:
        read()
    except StoreDamaged as error:
        return str(error)
    except DBAPIError as error:
        # The database, not the record; unless it is this place of the file that is damaged.
        if type(error) is DatabaseError or is_no_text(error):
            return f"the database cannot read it: {error.orig}"
        raise
    except Exception as error:  # noqa: BLE001  (a value that nobody wrote may fail its reader in any way; the rest is read)
        return f"it holds a value that nobody wrote: {type(error).__name__}: {error}"
    return None


def _orphans(connection: Connection, constraint: ForeignKeyConstraint) -> Iterator[Damage]:
    """Rows that name another one, which is not there. The database lets nobody write such rows."""
    table, (element,) = constraint.table, constraint.elements
    parent = element.column.table.alias()
    child, named = element.parent, parent.c[element.column.name]
    query: Select[Any] = select(literal_column(f"{table.name}.{child.name}")).select_from(table).distinct()
    missing = and_(child.is_not(None), ~exists().where(named == child))
    for key in connection.execute(query.where(missing)).scalars():
        shown = key.hex() if isinstance(key, bytes) else repr(key)
        yield Damage(f"{table.name} of {child.name} {shown}", f"{element.target_fullname} has no such row")


def _loose_images(connection: Connection) -> Iterator[Damage]:
    """A body holds its images by rows of `body_blobs`: without one, `prune` removes an image that is needed."""
    kept: dict[bytes, set[bytes]] = {}
    for body, blob in connection.execute(select(*body_blobs.c)):
        kept.setdefault(body, set()).add(blob)
    for digest, data in connection.execute(select(bodies.c.digest, bodies.c.data).execution_options(yield_per=500)):
        try:
            loose = held(codec.decompress(data)) - kept.get(digest, set())
        except (StoreDamaged, TypeError):
            # Its calls say so.
            continue
        for blob in sorted(loose):
            yield Damage(
                f"body {digest.hex()}", f"it holds image {blob.hex()}, and nothing keeps that from being pruned"
            )
