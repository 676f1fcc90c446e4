"""Listings: sessions and calls without their tokens, at the price of the rows that are shown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import func, select

from polarproxy.model import CallStatus, FinishReason
from polarproxy.store import rewards, values
from polarproxy.store.facts import Known, known_of
from polarproxy.store.schema import calls, completions, sessions

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from sqlalchemy import Connection, RowMapping

    from polarproxy.model import Session

_AT_ONCE = 500
"""Sessions in one question; SQLite takes 999 parameters at the least."""


@dataclass(frozen=True, slots=True)
class SessionSummary:
    """One line of a listing."""

    session: Session
    calls: int
    sampled_tokens: int


@dataclass(frozen=True, slots=True)
class CallSummary:
    """One line of a listing, without tokens."""

    call_id: str
    session_id: str
    ordinal: int
    arrived_at: datetime
    status: CallStatus
    streamed: bool
    served_model: str | None
    prompt_tokens: int | None
    """None: the engine did not show the prompt."""
    completion_tokens: int
    finish_reasons: tuple[str, ...]
    delivered: bool


def list_sessions(connection: Connection, limit: int | None, group_id: str | None) -> list[SessionSummary]:
    """The sessions, newest first: at most so many, of all groups or of one."""
    query = select(sessions).order_by(sessions.c.created_at.desc(), sessions.c.session_id.desc()).limit(limit)
    if group_id is not None:
        query = query.where(sessions.c.group_id == group_id)
    found = connection.execute(query).mappings().all()
    ids = [row["session_id"] for row in found]
    given, sizes = rewards.latest(connection, ids), _sizes(connection, ids)
    return [
        SessionSummary(values.read_session(row, given.get(session_id)), *sizes.get(session_id, (0, 0)))
        for session_id, row in zip(ids, found, strict=True)
    ]


def _sizes(connection: Connection, session_ids: Sequence[str]) -> dict[str, tuple[int, int]]:
    """Numbers of calls and of sampled tokens, of the sessions that have calls."""
    sampled = select(calls.c.session_id, func.count(calls.c.call_id.distinct()), func.sum(completions.c.length))
    sampled = sampled.select_from(calls.outerjoin(completions)).group_by(calls.c.session_id)
    found: dict[str, tuple[int, int]] = {}
    for start in range(0, len(session_ids), _AT_ONCE):
        some = calls.c.session_id.in_(session_ids[start : start + _AT_ONCE])
        found |= {row[0]: (row[1], int(row[2] or 0)) for row in connection.execute(sampled.where(some))}
    return found


_CALL_COLUMNS = (
    calls.c.call_id,
    calls.c.session_id,
    calls.c.ordinal,
    calls.c.arrived_at,
    calls.c.status,
    calls.c.streamed,
    calls.c.served_model,
    calls.c.prompt_length,
)


def list_calls(connection: Connection, session_id: str | None) -> list[CallSummary]:
    """The calls of a session, or of all, in order of arrival."""
    query = select(*_CALL_COLUMNS).order_by(calls.c.call_id if session_id is None else calls.c.ordinal)
    chosen = select(calls.c.call_id)
    if session_id is not None:
        query = query.where(calls.c.session_id == session_id)
        chosen = chosen.where(calls.c.session_id == session_id)
    columns = (completions.c.call_id, completions.c.length, completions.c.finish_reason)
    sampled: dict[str, list[tuple[int, str | None]]] = {}
    for call_id, length, finish in connection.execute(select(*columns).where(completions.c.call_id.in_(chosen))):
        sampled.setdefault(call_id, []).append((length, finish))
    facts = known_of(connection, chosen)
    found = connection.execute(query).mappings()
    return [_summary(row, sampled.get(row["call_id"], []), facts.get(row["call_id"], Known())) for row in found]


def _summary(row: RowMapping, sampled: list[tuple[int, str | None]], known: Known) -> CallSummary:
    return CallSummary(
        call_id=row["call_id"],
        session_id=row["session_id"],
        ordinal=row["ordinal"],
        arrived_at=row["arrived_at"],
        status=CallStatus(row["status"]),
        streamed=row["streamed"],
        served_model=row["served_model"],
        prompt_tokens=row["prompt_length"],
        completion_tokens=sum(length for length, _ in sampled),
        finish_reasons=tuple("none" if finish is None else FinishReason(finish).value for _, finish in sampled),
        delivered=known.delivered,
    )
