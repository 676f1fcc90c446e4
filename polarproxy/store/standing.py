"""Whether what new rows build on is still stored: a writer remembers it, and somebody may have pruned it meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sqlalchemy import Connection

    from polarproxy.store.rows import Row

_LOCKED = """
WITH session AS (
  SELECT FROM sessions WHERE session_id = ANY(%(sessions)s) ORDER BY session_id FOR KEY SHARE
), call AS (
  SELECT FROM calls WHERE call_id = ANY(%(calls)s) ORDER BY call_id FOR KEY SHARE
), body AS (
  SELECT FROM bodies WHERE digest = ANY(%(bodies)s) ORDER BY digest FOR KEY SHARE
)
SELECT (SELECT count(*) FROM session) + (SELECT count(*) FROM call) + (SELECT count(*) FROM body)
"""
"""In the order in which `prune` takes its locks, so that neither waits for the other."""


def bases_stand(connection: Connection, call_rows: Sequence[Row], body_rows: Iterable[Row]) -> bool:
    """Whether the sessions and bases of all these rows are there. If so, they stay until the transaction ends."""
    sessions = _sorted(row["session_id"] for row in call_rows)
    calls = _sorted(row["base_call_id"] for row in call_rows)
    bodies = _sorted(row["base_digest"] for row in body_rows)
    arguments: Any
    if connection.dialect.name == "postgresql":
        query, arguments = _LOCKED, {"sessions": sessions, "calls": calls, "bodies": bodies}
    else:
        # SQLite has only one writer, and that is this one until the transaction ends.
        query = (
            f"SELECT (SELECT count(*) FROM sessions WHERE session_id IN ({_marks(sessions)}))"
            f" + (SELECT count(*) FROM calls WHERE call_id IN ({_marks(calls)}))"
            f" + (SELECT count(*) FROM bodies WHERE digest IN ({_marks(bodies)}))"
        )
        arguments = (*sessions, *calls, *bodies)
    found = connection.exec_driver_sql(query, arguments).scalar_one()
    return bool(found == len(sessions) + len(calls) + len(bodies))


def _sorted(keys: Iterable[str | bytes | None]) -> list[str | bytes]:
    return sorted({key for key in keys if key is not None})


def _marks(keys: list[str | bytes]) -> str:
    return ",".join("?" * len(keys))
