"""Whether what new rows build on is still stored: a writer remembers it, and somebody may have pruned it meanwhile."""

from __future__ import annotations

from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

from sqlalchemy.exc import DataError

from polarproxy.store.inserts import translated

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from sqlalchemy import Connection

    from polarproxy.store.rows import Row

_LOCKS = """
WITH session AS (
  SELECT FROM sessions WHERE session_id = ANY(%(sessions)s) ORDER BY session_id FOR KEY SHARE
), call AS (
  SELECT FROM calls WHERE call_id = ANY(%(calls)s) ORDER BY call_id FOR KEY SHARE
), body AS (
  SELECT FROM bodies WHERE digest = ANY(%(bodies)s) ORDER BY digest FOR KEY SHARE
), found AS (
  SELECT (SELECT count(*) FROM session) + (SELECT count(*) FROM call) + (SELECT count(*) FROM body) AS count
)
"""
"""In the order in which `prune` takes its locks, so that neither waits for the other."""
_LOCKED = f"{_LOCKS} SELECT count FROM found"
_OR_FAIL = f"{_LOCKS} SELECT 1 / (count = %(count)s)::int FROM found"
"""Nothing that follows in the pipeline is done when something is missing."""
_BY_INDEX = "SET LOCAL enable_seqscan = off"
"""The question is prepared once, while the tables of a new database are all but empty, and its plan stands until they are
analysed: a plan that reads whole tables would take longer with every call."""
_DIVISION_BY_ZERO = "22012"


_VERSION = "PRAGMA data_version"
_MOST_SEEN = 200_000
"""Calls that are remembered, for some 30 MB."""


class Pruned(Exception):
    """Something that is remembered as stored is not there any more."""


@dataclass(slots=True)
class Seen:
    """What is in a SQLite file for sure: one connection stored it or asked for it, and nobody else changed the file since.

    Of PostgreSQL nothing is sure, because others may delete at any time: there every base is asked for, and locked.
    """

    version: int | None = None
    """SQLite's own number for the changes of others, as this connection sees it. None: it was not asked yet."""
    sessions: set[str] = field(default_factory=set)
    calls: set[str] = field(default_factory=set)
    bodies: set[bytes] = field(default_factory=set)

    def now_at(self, version: int) -> None:
        """Forgets everything if somebody changed the file."""
        if version != self.version or len(self.calls) > _MOST_SEEN:
            self.version = version
            self.sessions.clear()
            self.calls.clear()
            self.bodies.clear()

    def add(self, call_rows: Sequence[Row], body_rows: Sequence[Row]) -> None:
        """These were committed, on bases that stood."""
        if self.version is None:
            return
        self.sessions.update([row["session_id"] for row in call_rows])
        self.calls.update([row["call_id"] for row in call_rows])
        self.calls.update([row["base_call_id"] for row in call_rows if row["base_call_id"] is not None])
        self.bodies.update([row["digest"] for row in body_rows])
        self.bodies.update([row["base_digest"] for row in body_rows if row["base_digest"] is not None])


@contextmanager
def bases_standing(
    connection: Connection, call_rows: Sequence[Row], body_rows: Sequence[Row], seen: Seen
) -> Iterator[None]:
    """Makes sure that the sessions and bases of all these rows are there, and that they stay until the transaction ends.

    What is inserted in the block goes to PostgreSQL in the same breath as the question. Raises `Pruned`.
    """
    if connection.dialect.name == "postgresql":
        with _asked_along(connection, _wanted(call_rows, body_rows, seen)):
            yield
        return
    # SQLite has only one writer, and that is this one until the transaction ends.
    with translated(connection, _VERSION), closing(connection.connection.cursor()) as cursor:
        seen.now_at(cursor.execute(_VERSION).fetchone()[0])
        wanted = _wanted(call_rows, body_rows, seen)
        if wanted.count:
            kinds = (wanted.sessions, wanted.calls, wanted.bodies)
            query = _count(room := _room(max(map(len, kinds))))
            filled = [key for keys in kinds for key in (*keys, *[None] * (room - len(keys)))]
            if cursor.execute(query, filled).fetchone() != (wanted.count,):
                raise Pruned
    yield


def _wanted(call_rows: Sequence[Row], body_rows: Sequence[Row], seen: Seen) -> _Wanted:
    return _Wanted(
        _sorted({row["session_id"] for row in call_rows} - seen.sessions),
        _sorted({row["base_call_id"] for row in call_rows} - seen.calls),
        _sorted({row["base_digest"] for row in body_rows} - seen.bodies),
    )


@dataclass(frozen=True, slots=True)
class _Wanted:
    sessions: list[str | bytes]
    calls: list[str | bytes]
    bodies: list[str | bytes]

    @property
    def count(self) -> int:
        return len(self.sessions) + len(self.calls) + len(self.bodies)

    def arguments(self) -> dict[str, Any]:
        return {"sessions": self.sessions, "calls": self.calls, "bodies": self.bodies}


@contextmanager
def _asked_along(connection: Connection, wanted: _Wanted) -> Iterator[None]:
    driver: Any = connection.connection.driver_connection
    with closing(driver.cursor()) as cursor:
        with translated(connection, _LOCKED), driver.pipeline():
            driver.execute(_BY_INDEX)
            cursor.execute(_LOCKED, wanted.arguments())
            yield
        if cursor.fetchone() != (wanted.count,):
            raise Pruned


@contextmanager
def in_one_breath(connection: Connection) -> Iterator[None]:
    """What is done in the block and the commit, all in one round trip to PostgreSQL, which does all of it or nothing.

    Raises `Pruned` when `fail_unless_standing` was among it and something is missing.
    """
    driver: Any = connection.connection.driver_connection
    try:
        with translated(connection, "COMMIT"), driver.pipeline():
            yield
            driver.commit()
    except DataError as error:
        if getattr(error.orig, "sqlstate", None) == _DIVISION_BY_ZERO:
            raise Pruned from error
        raise


def fail_unless_standing(connection: Connection, call_rows: Sequence[Row], body_rows: Sequence[Row]) -> None:
    """In a pipeline: nothing that follows is done unless the sessions and bases of all these rows are there."""
    wanted = _wanted(call_rows, body_rows, Seen())
    with closing(connection.connection.cursor()) as cursor:
        cursor.execute(_BY_INDEX)
        cursor.execute(_OR_FAIL, wanted.arguments() | {"count": wanted.count})


def _sorted(keys: Iterable[Any]) -> list[str | bytes]:
    return sorted(key for key in keys if key is not None)


def _room(count: int) -> int:
    """The next power of two."""
    return 1 << max(0, count - 1).bit_length()


@cache
def _count(room: int) -> str:
    """For so many keys of each kind, or fewer and NULL, to which nothing is equal. There are few such statements, so that
    SQLite need not compile one each time."""
    marks = ",".join("?" * room)
    return (
        f"SELECT (SELECT count(*) FROM sessions WHERE session_id IN ({marks}))"
        f" + (SELECT count(*) FROM calls WHERE call_id IN ({marks}))"
        f" + (SELECT count(*) FROM bodies WHERE digest IN ({marks}))"
    )
