"""Batches that consumers take: each session goes to each consumer once, in a batch that stays the same until it is
acknowledged.

A lease says who has a batch, and until when. When it runs out, the same batch is handed out under another lease, so that
every batch arrives at least once; a lease that is asked for again shows its batch again, byte for byte. What two consumers
of one name want at once is settled by the keys of the tables.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import func, insert, select, update
from sqlalchemy.exc import IntegrityError

from polarproxy.errors import BatchTaken, NotFound
from polarproxy.store import ready
from polarproxy.store.database import for_writing
from polarproxy.store.schema import batch_leases, batch_sessions, batches

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from sqlalchemy import Connection, Engine, RowMapping, Update

    from polarproxy.store.ready import Ready, Waiting


_AT_ONCE = 500
"""Ids in one question; SQLite takes 999 parameters at the least."""


@dataclass(frozen=True, slots=True)
class Lease:
    """A batch in the hands of a consumer."""

    consumer: str
    lease_id: str
    batch_id: str
    rows: int
    body: bytes
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class NewBatch:
    """A batch that nobody has had."""

    batch_id: str
    rows: int
    body: bytes
    sessions: Sequence[str]
    """Those whose rows are in it, or that have none."""


@dataclass(frozen=True, slots=True)
class Consumer:
    """What a consumer has had."""

    name: str
    leased: int
    """Batches that it has, or had and did not acknowledge."""
    acked: int
    rows: int
    """Of those that it acknowledged."""


class Leases:
    """The batches of all consumers of a store. Safe to use from several threads and processes."""

    def __init__(self, engine: Engine) -> None:
        self._engine, self._writing = engine, for_writing(engine)

    def ready(self, consumer: str, least: int, most: int) -> list[Ready]:
        """At most so many complete groups of at least `least` sessions that the consumer lacks; the oldest first."""
        with self._engine.begin() as connection:
            return ready.ready_groups(connection, consumer, least, most)

    def waiting(self, consumer: str, least: int) -> Waiting:
        """The groups that the consumer lacks, by what they wait for."""
        with self._engine.begin() as connection:
            return ready.waiting(connection, consumer, least)

    def had(self, consumer: str, session_ids: Sequence[str]) -> set[str]:
        """Which of these sessions the consumer was given already."""
        query = select(batch_sessions.c.session_id).where(batch_sessions.c.consumer == consumer)
        found: set[str] = set()
        with self._engine.begin() as connection:
            for start in range(0, len(session_ids), _AT_ONCE):
                these = batch_sessions.c.session_id.in_(session_ids[start : start + _AT_ONCE])
                found.update(connection.execute(query.where(these)).scalars())
        return found

    def again(self, consumer: str, lease_id: str, until: datetime) -> Lease | None:
        """The batch of a lease that was given before, leased until then. None: there was no such lease.

        Raises `BatchTaken` when it is acknowledged, or somebody else has it by now.
        """
        with self._writing.begin() as connection:
            row = _of_lease(connection, consumer, lease_id)
            if row is None:
                return None
            if row["body"] is None:
                raise BatchTaken(f"lease {lease_id!r} of {consumer!r} is acknowledged already; ask under another name")
            if row["lease_id"] != lease_id:
                raise BatchTaken(
                    f"lease {lease_id!r} of {consumer!r} ran out, and its batch {row['batch_id']} was handed out again as"
                    f" {row['lease_id']!r}"
                )
            connection.execute(_this(row).values(expires_at=until))
            return _lease(row, lease_id, until)

    def reclaim(self, consumer: str, lease_id: str, now: datetime, until: datetime) -> Lease | None:
        """The oldest batch whose lease ran out, under a new lease. None: there is none.

        Raises `BatchTaken` when somebody else took a lease of this name meanwhile.
        """
        query = (
            select(batches)
            .where(batches.c.consumer == consumer, batches.c.acked_at.is_(None), batches.c.expires_at <= now)
            .order_by(batches.c.made_at, batches.c.batch_id)
            .limit(1)
            .with_for_update(skip_locked=True)
        )
        try:
            with self._writing.begin() as connection:
                row = connection.execute(query).mappings().first()
                if row is None:
                    return None
                connection.execute(_this(row).values(lease_id=lease_id, expires_at=until))
                _add_lease(connection, consumer, lease_id, row["batch_id"])
                return _lease(row, lease_id, until)
        except IntegrityError as error:
            raise BatchTaken(f"somebody else has the lease {lease_id!r} of {consumer!r}") from error

    def hand_out(self, consumer: str, batch: NewBatch, lease_id: str, now: datetime, until: datetime) -> Lease:
        """Stores a batch and gives it away; one without rows is acknowledged at once.

        Raises `BatchTaken`, and nothing is stored, when the consumer was given one of the sessions meanwhile.
        """
        empty = batch.rows == 0
        row = {
            "batch_id": batch.batch_id,
            "consumer": consumer,
            "made_at": now,
            "rows": batch.rows,
            "body": None if empty else batch.body,
            "lease_id": lease_id,
            "expires_at": until,
            "acked_at": now if empty else None,
        }
        given = [
            {"consumer": consumer, "session_id": name, "batch_id": batch.batch_id} for name in sorted(batch.sessions)
        ]
        try:
            with self._writing.begin() as connection:
                connection.execute(insert(batches).values(row))
                connection.execute(insert(batch_sessions), given)
                if not empty:
                    _add_lease(connection, consumer, lease_id, batch.batch_id)
        except IntegrityError as error:
            raise BatchTaken(f"somebody else took sessions of batch {batch.batch_id} as {consumer!r}") from error
        return Lease(consumer, lease_id, batch.batch_id, batch.rows, batch.body, until)

    def acknowledge(self, consumer: str, lease_id: str, now: datetime) -> bool:
        """The batch of a lease was taken care of and is never handed out again. False: that was known already.

        A lease that ran out counts, too: its batch did arrive. Raises `NotFound`.
        """
        with self._writing.begin() as connection:
            row = _known(connection, consumer, lease_id)
            changed = connection.execute(_this(row).where(batches.c.acked_at.is_(None)).values(acked_at=now, body=None))
            return bool(changed.rowcount)

    def release(self, consumer: str, lease_id: str, now: datetime) -> bool:
        """Gives a batch back, to be handed out at once. False: the lease is not in force. Raises `NotFound`."""
        with self._writing.begin() as connection:
            row = _known(connection, consumer, lease_id)
            in_force = _this(row).where(batches.c.acked_at.is_(None), batches.c.lease_id == lease_id)
            return bool(connection.execute(in_force.values(expires_at=now)).rowcount)

    def consumers(self) -> list[Consumer]:
        """Everybody who ever took a batch, by name."""
        acked = batches.c.acked_at.is_not(None)
        query = select(
            batches.c.consumer,
            func.count().filter(~acked),
            func.count().filter(acked),
            func.coalesce(func.sum(batches.c.rows).filter(acked), 0),
        )
        with self._engine.begin() as connection:
            found = connection.execute(query.group_by(batches.c.consumer).order_by(batches.c.consumer))
            return [Consumer(name, int(leased), int(done), int(rows)) for name, leased, done, rows in found]


def _of_lease(connection: Connection, consumer: str, lease_id: str) -> RowMapping | None:
    own = (batch_leases.c.consumer == consumer, batch_leases.c.lease_id == lease_id)
    query = select(batches).join(batch_leases, batch_leases.c.batch_id == batches.c.batch_id).where(*own)
    return connection.execute(query.with_for_update()).mappings().one_or_none()


def _known(connection: Connection, consumer: str, lease_id: str) -> RowMapping:
    row = _of_lease(connection, consumer, lease_id)
    if row is None:
        raise NotFound(f"{consumer!r} has no lease {lease_id!r}; GET /api/batches/next gives one")
    return row


def _this(row: RowMapping) -> Update:
    return update(batches).where(batches.c.batch_id == row["batch_id"])


def _add_lease(connection: Connection, consumer: str, lease_id: str, batch_id: str) -> None:
    connection.execute(insert(batch_leases).values(consumer=consumer, lease_id=lease_id, batch_id=batch_id))


def _lease(row: RowMapping, lease_id: str, until: datetime) -> Lease:
    return Lease(row["consumer"], lease_id, row["batch_id"], row["rows"], row["body"], until)
