"""What the store knows of sessions, in a few numbers that change with it: calls and facts are only ever added or deleted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import func, select

from polarproxy.store.schema import call_facts, calls

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection

_AT_ONCE = 500
"""Sessions in one question; SQLite takes 999 parameters at the least."""


def fingerprints(connection: Connection, session_ids: Sequence[str]) -> dict[str, tuple[int, int, int]]:
    """Numbers of calls and of facts about them, and the latest fact, of the sessions that have calls."""
    counted = select(
        calls.c.session_id,
        func.count(calls.c.call_id.distinct()),
        func.count(call_facts.c.fact_id),
        func.coalesce(func.max(call_facts.c.fact_id), 0),
    )
    counted = counted.select_from(calls.outerjoin(call_facts)).group_by(calls.c.session_id)
    found: dict[str, tuple[int, int, int]] = {}
    for start in range(0, len(session_ids), _AT_ONCE):
        some = calls.c.session_id.in_(session_ids[start : start + _AT_ONCE])
        found |= {row[0]: (row[1], row[2], row[3]) for row in connection.execute(counted.where(some))}
    return found
