"""Removing old sessions, and what only they used. What other sessions build on is rewritten first, in the same transaction.

Sessions go some at a time, so that a proxy that writes meanwhile waits for a moment and not for all of it, and a prune that
is broken off leaves a sound store.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from sqlalchemy import ColumnElement, and_, delete, exists, func, select

from polarproxy.store.database import for_writing
from polarproxy.store.rebase import rebase_dependents
from polarproxy.store.schema import (
    call_facts,
    calls,
    completions,
    responses,
    reward_components,
    rewards,
    session_heads,
    sessions,
    turn_rewards,
)
from polarproxy.store.sound import reading_from
from polarproxy.store.sweep import sweep_blobs, sweep_bodies, unused_blob_bytes, unused_bodies

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence
    from datetime import datetime

    from sqlalchemy import Column, Connection, Engine, Select, Table

_CALLS_AT_ONCE = 2000
_SESSIONS_AT_ONCE = 200
"""Most calls and sessions of one transaction; a session is never split."""


@dataclass(frozen=True, slots=True)
class Rule:
    """Which sessions go."""

    before: datetime
    """Those made before, with no call and no reward since."""
    keep_rewarded: bool = False
    """Whether sessions stay that have a reward."""

    @property
    def condition(self) -> ColumnElement[bool]:
        """On rows of `sessions`."""
        # Aliases, because the question may be part of one about calls.
        call, reward = calls.alias(), rewards.alias()
        late = () if self.keep_rewarded else (reward.c.recorded_at >= self.before,)
        return and_(
            sessions.c.created_at < self.before,
            ~exists().where(call.c.session_id == sessions.c.session_id, call.c.arrived_at >= self.before),
            ~exists().where(reward.c.session_id == sessions.c.session_id, *late),
        )


@dataclass(frozen=True, slots=True)
class Freed:
    """What goes, or has gone."""

    sessions: int = 0
    calls: int = 0
    sampled_tokens: int = 0
    rewards: int = 0
    responses: int = 0
    token_bytes: int = 0
    """Stored bytes of prompts, completions and logprobs."""
    response_bytes: int = 0
    bodies: int = 0
    body_bytes: int = 0
    rebased: int = 0
    """Prompts of other sessions that built on these and stand on their own now. 0 before it has happened."""

    def __add__(self, other: Freed) -> Freed:
        return Freed(*(getattr(self, field.name) + getattr(other, field.name) for field in fields(Freed)))

    @property
    def bytes(self) -> int:
        """All of them."""
        return self.token_bytes + self.response_bytes + self.body_bytes


def preview(engine: Engine, rule: Rule) -> Freed:
    """What a prune would remove now."""
    doomed = select(sessions.c.session_id).where(rule.condition)
    with reading_from(engine) as connection:
        found = _weigh(connection, doomed)
        kept = exists().where(sessions.c.session_id == calls.c.session_id, ~rule.condition)
        unused = unused_bodies(connection, kept)
        images = unused_blob_bytes(connection, unused)
    return found + Freed(bodies=len(unused), body_bytes=images + sum(body.bytes for body in unused))


def prune(engine: Engine, rule: Rule) -> Generator[Freed, None, None]:
    """Removes the sessions; yields what each transaction freed, with `sessions` to count progress by."""
    with for_writing(engine).connect() as connection:
        for batch in _batches(_chosen(connection, rule)):
            with connection.begin():
                freed = _remove(connection, rule, batch)
            yield freed
        for count, size in sweep_bodies(connection):
            yield Freed(bodies=count, body_bytes=size)
        _, size = sweep_blobs(connection)
        yield Freed(body_bytes=size)


def free_bytes(engine: Engine) -> int | None:
    """Bytes of a SQLite file that hold nothing and wait for new calls. None: another database, which sees to that itself."""
    if engine.dialect.name != "sqlite":
        return None
    with reading_from(engine) as connection:
        pages, size = (
            connection.exec_driver_sql(f"PRAGMA {name}").scalar_one() for name in ("freelist_count", "page_size")
        )
    return int(pages * size)


def vacuum(engine: Engine) -> None:
    """Gives the free bytes of a SQLite file back to the disk. Nobody can write meanwhile; another database is left alone."""
    if engine.dialect.name != "sqlite":
        return
    connection = engine.raw_connection()
    try:
        connection.cursor().execute("VACUUM")
    finally:
        connection.close()


def _chosen(connection: Connection, rule: Rule) -> list[tuple[str, int]]:
    """The sessions and their numbers of calls. The latest first: they build on earlier ones, not the other way round."""
    count = select(func.count()).where(calls.c.session_id == sessions.c.session_id).scalar_subquery()
    query = select(sessions.c.session_id, count).where(rule.condition)
    with connection.begin():
        found = connection.execute(query.order_by(sessions.c.created_at.desc(), sessions.c.session_id)).all()
    return [(row[0], row[1]) for row in found]


def _batches(found: Sequence[tuple[str, int]]) -> Iterator[list[str]]:
    batch: list[str] = []
    size = 0
    for session_id, count in found:
        if batch and (size + count > _CALLS_AT_ONCE or len(batch) == _SESSIONS_AT_ONCE):
            yield batch
            batch, size = [], 0
        batch.append(session_id)
        size += count
    if batch:
        yield batch


def _remove(connection: Connection, rule: Rule, batch: Sequence[str]) -> Freed:
    """Removes those of these sessions that are still old."""
    # Whether they are is asked once they are locked: what was committed while we waited for the locks counts.
    locked = select(sessions.c.session_id).where(sessions.c.session_id.in_(batch)).order_by(sessions.c.session_id)
    held = list(connection.execute(locked.with_for_update()).scalars())
    still = select(sessions.c.session_id).where(sessions.c.session_id.in_(held), rule.condition)
    ids = list(connection.execute(still).scalars())
    chosen = select(calls.c.call_id).where(calls.c.session_id.in_(ids)).order_by(calls.c.call_id)
    # From here on nobody can begin to build on them (see `Receiver`).
    connection.execute(chosen.with_for_update()).all()
    rebased = rebase_dependents(connection, ids)
    freed = _weigh(connection, select(sessions.c.session_id).where(sessions.c.session_id.in_(ids)))
    _remove_heads(connection, ids)
    given = select(rewards.c.reward_id).where(rewards.c.session_id.in_(ids))
    for table in (completions, call_facts, responses):
        connection.execute(delete(table).where(table.c.call_id.in_(chosen)))
    for parts in (reward_components, turn_rewards):
        connection.execute(delete(parts).where(parts.c.reward_id.in_(given)))
    for table in (rewards, calls, sessions):
        connection.execute(delete(table).where(table.c.session_id.in_(ids)))
    return freed + Freed(rebased=rebased)


def _remove_heads(connection: Connection, ids: Sequence[str]) -> None:
    """Those of which every place is taken by a call: one that was given to a call under way must not be given again."""
    used = select(func.coalesce(func.max(calls.c.ordinal) + 1, 0)).where(
        calls.c.session_id == session_heads.c.session_id
    )
    every = session_heads.c.next_ordinal <= used.scalar_subquery()
    connection.execute(delete(session_heads).where(session_heads.c.session_id.in_(ids), every))


def _weigh(connection: Connection, doomed: Select[tuple[str]]) -> Freed:
    of_session = calls.c.session_id.in_(doomed)
    chosen = select(calls.c.call_id).where(of_session)
    prompts = _sums(connection, calls, of_session, calls.c.prompt_suffix)
    sampled = _sums(
        connection, completions, completions.c.call_id.in_(chosen), completions.c.token_ids, completions.c.logprobs
    )
    kept = _sums(connection, responses, responses.c.call_id.in_(chosen), responses.c.input, responses.c.reply)
    tokens = select(func.sum(completions.c.length)).where(completions.c.call_id.in_(chosen))
    return Freed(
        sessions=connection.execute(select(func.count()).select_from(doomed.subquery())).scalar_one(),
        calls=prompts[0],
        sampled_tokens=int(connection.execute(tokens).scalar_one() or 0),
        rewards=connection.execute(select(func.count()).where(rewards.c.session_id.in_(doomed))).scalar_one(),
        responses=kept[0],
        token_bytes=prompts[1] + sampled[1],
        response_bytes=kept[1],
    )


def _sums(
    connection: Connection, table: Table, condition: ColumnElement[bool], *sized: Column[bytes]
) -> tuple[int, int]:
    """How many rows meet the condition, and how many bytes these columns of theirs take."""
    sizes = (func.coalesce(func.sum(func.length(column)), 0) for column in sized)
    count, *found = connection.execute(select(func.count(), *sizes).select_from(table).where(condition)).one()
    return count, sum(map(int, found))
