"""Everything into another database, session by session. What is there already is compared, so that a run can be resumed."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

import msgspec
import xxhash
from sqlalchemy import func, select

from polarproxy.errors import BadArchive, StoreConflict, StoreDamaged
from polarproxy.store import codec
from polarproxy.store.entries import columns, content_digest, read_calls, read_session, taken
from polarproxy.store.receiving import Receiver
from polarproxy.store.schema import (
    batch_leases,
    batch_sessions,
    batches,
    call_facts,
    calls,
    completions,
    policy_versions,
    responses,
    reward_components,
    rewards,
    rollouts,
    sessions,
    tasks,
    token_texts,
    turn_rewards,
    upstreams,
)
from polarproxy.store.sound import reading_from
from polarproxy.store.spellings import read_texts

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sqlalchemy import Engine, Table

COUNTED = (
    sessions,
    calls,
    completions,
    call_facts,
    responses,
    rewards,
    reward_components,
    turn_rewards,
    token_texts,
    upstreams,
    policy_versions,
    tasks,
    rollouts,
    batches,
    batch_leases,
    batch_sessions,
)
"""Tables of which both databases must have as many rows. Bodies that no call names any more are not copied."""
_SHARED = (policy_versions, upstreams, tasks, rollouts, batches, batch_leases, batch_sessions)
"""Tables whose rows belong to no session and are copied as they are."""


class Outcome(StrEnum):
    """What became of a session."""

    COPIED = "copied"
    """It is in the other database, and reads there as it does here."""
    THERE = "there"
    """It was there before, equal to what it is here."""
    CONFLICT = "conflict"
    """It is there with another content, or cannot be stored there; it was left as it is."""
    DAMAGED = "damaged"
    """It does not read back here as it was written."""
    GONE = "gone"
    """It was pruned meanwhile."""


@dataclass(frozen=True, slots=True)
class Copied:
    """One session of a run."""

    session_id: str
    outcome: Outcome
    digest: bytes | None
    """Of its content, the same in both databases. None: it is not the same in both."""
    why: str | None = None
    """None: nothing went wrong."""


def copy_sessions(source: Engine, target: Engine, session_ids: Sequence[str]) -> Iterator[Copied]:
    """Copies sessions, oldest first; yields what became of each, once that is committed and read back."""
    receiver = Receiver(target)
    for session_id in session_ids:
        try:
            yield _copy(source, target, receiver, session_id)
        except (StoreDamaged, BadArchive) as error:
            yield Copied(session_id, Outcome.DAMAGED, None, str(error))
        except StoreConflict as error:
            yield Copied(session_id, Outcome.CONFLICT, None, str(error))


def _copy(source: Engine, target: Engine, receiver: Receiver, session_id: str) -> Copied:
    stored = _digest(target, session_id)
    with reading_from(source) as connection:
        if stored is not None:
            same = content_digest(connection, session_id) == stored
            if not same:
                return Copied(
                    session_id,
                    Outcome.CONFLICT,
                    None,
                    "it is there with another content (one that went on since it was copied needs an empty database)",
                )
            return Copied(session_id, Outcome.THERE, stored)
        session = read_session(connection, session_id)
        if session is None:
            return Copied(session_id, Outcome.GONE, None)
        digest = receiver.store(session, read_calls(connection, session_id))
    if _digest(target, session_id) != digest:
        return Copied(session_id, Outcome.DAMAGED, None, "it reads back differently from the other database")
    return Copied(session_id, Outcome.COPIED, digest)


def _digest(engine: Engine, session_id: str) -> bytes | None:
    with reading_from(engine) as connection:
        return content_digest(connection, session_id)


def copy_shared(source: Engine, target: Engine) -> None:
    """Copies what belongs to no session: spellings of tokens, when policy versions were set, engines added meanwhile."""
    receiver = Receiver(target)
    with reading_from(source) as connection:
        for table in _SHARED:
            receiver.store_shared(table, [dict(row) for row in connection.execute(select(table)).mappings()])
        for model in connection.execute(select(token_texts.c.model).distinct()).scalars().all():
            for texts in read_texts(connection, model):
                receiver.store_texts(model, texts)


def total_digest(copied: Sequence[Copied]) -> bytes:
    """XXH3-128 over the digests of the sessions that are the same in both databases, by name."""
    state = xxhash.xxh3_128()
    for one in sorted(copied, key=lambda one: one.session_id):
        if one.digest is not None:
            state.update(one.session_id.encode() + one.digest)
    return state.digest()


@dataclass(frozen=True, slots=True)
class Count:
    """Rows of a table in both databases."""

    table: str
    here: int
    there: int
    other: int
    """Rows that have a key of ours there and another content. 0 for what belongs to a session, which tells it itself."""
    differs: bool
    """Whether the other database lacks rows or has others; or has more, though it holds no other sessions."""


def compare_counts(source: Engine, target: Engine) -> list[Count]:
    """The tables of both databases, by number of rows; and by their content, where no session is compared for them."""
    here, there = _counts(source), _counts(target)
    more = there["sessions"] > here["sessions"]
    other = {str(table.name): _others(source, target, table) for table in _SHARED}
    return [
        Count(
            name,
            count,
            there[name],
            other.get(name, 0),
            there[name] < count or (there[name] > count and not more) or other.get(name, 0) > 0,
        )
        for name, count in here.items()
    ]


def _others(source: Engine, target: Engine, table: Table) -> int:
    """How many rows are in both under the same key, and not the same."""
    here, there = _digests(source, table), _digests(target, table)
    return sum(there.get(key, digest) != digest for key, digest in here.items())


def _digests(engine: Engine, table: Table) -> dict[bytes, bytes]:
    """Of each row, by its key."""
    every, key, encoder = columns(table), columns(table.primary_key), msgspec.msgpack.Encoder()
    with reading_from(engine) as connection:
        rows = connection.execute(select(table).execution_options(yield_per=500)).mappings()
        return {encoder.encode(taken(row, key)): codec.digest(encoder.encode(taken(row, every))) for row in rows}


def _counts(engine: Engine) -> dict[str, int]:
    with reading_from(engine) as connection:
        return {
            str(table.name): connection.execute(select(func.count()).select_from(table)).scalar_one()
            for table in COUNTED
        }
