"""How much is stored, and how little it takes: tokens as the engine saw them against tokens and bytes as they lie here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import ColumnElement, func, select
from sqlalchemy.exc import DBAPIError

from polarproxy.store.database import sqlite_file
from polarproxy.store.schema import bodies, calls, completions, metadata, rewards, sessions
from polarproxy.store.sound import reading_from

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine

_SIZES = (
    "SELECT m.tbl_name, sum(d.pgsize) FROM dbstat d JOIN sqlite_schema m ON m.name = d.name"
    " WHERE d.aggregate = TRUE GROUP BY m.tbl_name"
)


@dataclass(frozen=True, slots=True)
class Stats:
    """One moment of a store. Bytes of tokens, logprobs and bodies are those of the values as stored."""

    sessions: int
    rewarded_sessions: int
    calls: int
    completions: int
    prompt_tokens: int
    """Positions of all prompts, as sent to the engine: a history counts each time it was sent."""
    sampled_tokens: int
    stored_tokens: int
    """Positions that are stored: of each prompt what lies beyond its base, and the sampled ones."""
    token_bytes: int
    """Of prompts and sampled ids."""
    logprob_bytes: int
    bodies: int
    body_bytes: int
    sent_body_bytes: int
    """Of request bodies as the clients sent them: one that was sent twice counts twice."""
    table_bytes: dict[str, int] | None
    """What each table takes in the database, with its indexes. None: this SQLite cannot tell."""
    database_bytes: int
    """The whole database on the disk; of SQLite with its log."""

    @property
    def positions(self) -> int:
        """Tokens as the engine saw them, in and out."""
        return self.prompt_tokens + self.sampled_tokens

    @property
    def dedup_ratio(self) -> float | None:
        """Positions as sent for each that is stored. None: nothing is."""
        return self.positions / self.stored_tokens if self.stored_tokens else None

    @property
    def token_bytes_per_position(self) -> float | None:
        """Stored bytes of ids for each position as sent. None: there is none."""
        return self.token_bytes / self.positions if self.positions else None

    @property
    def database_bytes_per_position(self) -> float | None:
        """Bytes of the whole database, bodies and all, for each position as sent. None: there is none."""
        return self.database_bytes / self.positions if self.positions else None


def read_stats(engine: Engine) -> Stats:
    """Counts and sizes; reads every table once."""
    with reading_from(engine) as connection:
        prompts = _row(
            connection,
            func.count(),
            func.sum(calls.c.prompt_length),
            func.sum(calls.c.prompt_length - func.coalesce(calls.c.base_length, 0)),
            func.sum(func.length(calls.c.prompt_suffix)),
        )
        sampled = _row(
            connection,
            func.count(completions.c.call_id),
            func.sum(completions.c.length),
            func.sum(func.length(completions.c.token_ids)),
            func.sum(func.length(completions.c.logprobs)),
        )
        kept = _row(connection, func.count(bodies.c.digest), func.sum(func.length(bodies.c.data)))
        sent = select(func.sum(bodies.c.length)).join(calls, calls.c.body_digest == bodies.c.digest)
        return Stats(
            sessions=_row(connection, func.count(sessions.c.session_id))[0],
            rewarded_sessions=_row(connection, func.count(rewards.c.session_id.distinct()))[0],
            calls=prompts[0],
            completions=sampled[0],
            prompt_tokens=prompts[1],
            sampled_tokens=sampled[1],
            stored_tokens=prompts[2] + sampled[1],
            token_bytes=prompts[3] + sampled[2],
            logprob_bytes=sampled[3],
            bodies=kept[0],
            body_bytes=kept[1],
            sent_body_bytes=int(connection.execute(sent).scalar_one() or 0),
            table_bytes=_table_bytes(connection),
            database_bytes=_database_bytes(connection),
        )


def _row(connection: Connection, *wanted: ColumnElement[int]) -> list[int]:
    """Counts and sums, 0 where there is nothing to sum."""
    return [int(value or 0) for value in connection.execute(select(*wanted)).one()]


def _table_bytes(connection: Connection) -> dict[str, int] | None:
    if connection.dialect.name == "postgresql":
        sizes = (func.pg_total_relation_size(name).label(name) for name in metadata.tables)
        return dict(connection.execute(select(*sizes)).mappings().one())
    try:
        found: dict[str, int] = {row[0]: row[1] for row in connection.exec_driver_sql(_SIZES)}
    except DBAPIError:
        # An SQLite that was built without this table.
        return None
    return {name: found.get(name, 0) for name in metadata.tables}


def _database_bytes(connection: Connection) -> int:
    if connection.dialect.name == "postgresql":
        return int(connection.execute(select(func.pg_database_size(func.current_database()))).scalar_one())
    file = sqlite_file(connection.engine.url.render_as_string())
    assert file is not None
    parts = (file.with_name(file.name + end) for end in ("", "-wal"))
    return sum(part.stat().st_size for part in parts if part.exists())
