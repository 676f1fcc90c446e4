"""Which groups of sessions are complete, so that a consumer of batches can have them.

A group is complete when every session of it is closed and has the reward that it is to have. What failed on our side needs
none: it is out of the loss and out of the baseline, and nobody will judge it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlalchemy import and_, case, exists, func, literal, or_, select

from polarproxy.model import SessionStatus
from polarproxy.store.schema import batch_sessions, rewards, sessions

if TYPE_CHECKING:
    from sqlalchemy import Connection

_UNJUDGED = (SessionStatus.INFRA_ERROR, SessionStatus.EVALUATOR_ERROR, SessionStatus.ABORTED)
"""Sessions that ended like this need no reward."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """Groups that a consumer has not had (all of), by why it cannot have them yet."""

    ready: int
    open: int
    """With a session that is still open."""
    unrewarded: int
    """Closed, with a session that nobody has given a reward."""
    small: int
    """Complete, with fewer sessions than are wanted."""


def _groups(consumer: str) -> Any:
    """A row for each group of which the consumer lacks a session.

    What it lacks is found first, by the keys of what it had: nearly all sessions of an old store are had, and groups are
    counted for the few others only.
    """
    had = exists().where(batch_sessions.c.consumer == consumer, batch_sessions.c.session_id == sessions.c.session_id)
    lacking = select(sessions.c.session_id, sessions.c.group_id).where(~had).cte("lacking")
    rewarded = exists().where(rewards.c.session_id == sessions.c.session_id)
    is_open = sessions.c.status == SessionStatus.OPEN.value
    judged = sessions.c.status.in_([status.value for status in _UNJUDGED])
    key = func.coalesce(literal("g") + sessions.c.group_id, literal("s") + sessions.c.session_id)
    query = (
        select(
            key.label("key"),
            func.max(sessions.c.group_id).label("group_id"),
            func.min(sessions.c.session_id).label("session_id"),
            func.min(sessions.c.created_at).label("since"),
            func.count().label("size"),
            func.sum(case((is_open, 1), else_=0)).label("open"),
            func.sum(case((and_(~is_open, ~judged, ~rewarded), 1), else_=0)).label("unrewarded"),
        )
        .where(
            or_(
                sessions.c.group_id.in_(select(lacking.c.group_id)),
                and_(sessions.c.group_id.is_(None), sessions.c.session_id.in_(select(lacking.c.session_id))),
            )
        )
        .group_by(key)
    )
    return query.subquery()


@dataclass(frozen=True, slots=True)
class Ready:
    """A complete group. A session without a group is one of its own."""

    group_id: str | None
    session_id: str
    """One of its sessions; the only one where `group_id` is None."""


def ready_groups(connection: Connection, consumer: str, least: int, most: int) -> list[Ready]:
    """Complete groups of at least `least` sessions of which the consumer lacks one, at most `most`; the oldest first."""
    found = _groups(consumer)
    query = (
        select(found.c.group_id, found.c.session_id)
        .where(found.c.open == 0, found.c.unrewarded == 0, found.c.size >= least)
        .order_by(found.c.since, found.c.key)
        .limit(most)
    )
    return [Ready(row.group_id, row.session_id) for row in connection.execute(query)]


def waiting(connection: Connection, consumer: str, least: int) -> Waiting:
    """The groups that the consumer lacks."""
    found = _groups(consumer)
    complete = and_(found.c.open == 0, found.c.unrewarded == 0)

    def count(condition: Any) -> Any:
        return func.coalesce(func.sum(case((condition, 1), else_=0)), 0)

    query = select(
        count(and_(complete, found.c.size >= least)),
        count(found.c.open > 0),
        count(and_(found.c.open == 0, found.c.unrewarded > 0)),
        count(and_(complete, found.c.size < least)),
    )
    return Waiting(*map(int, connection.execute(query).one()))
