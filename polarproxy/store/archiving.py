"""Sessions into an archive, and back out of it: twice the same is a no-op, another content under a known name is refused."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from sqlalchemy import select

from polarproxy.errors import BadArchive, NotFound, StoreConflict
from polarproxy.model.plurals import counted
from polarproxy.store.archive import ArchiveWriter, TextsEntry, read_archive
from polarproxy.store.checking import check_call, check_session
from polarproxy.store.entries import (
    CallEntry,
    ContentDigest,
    SessionEntry,
    content_digest,
    read_calls,
    read_session,
)
from polarproxy.store.receiving import Receiver
from polarproxy.store.schema import calls, responses, sessions
from polarproxy.store.sound import reading_from
from polarproxy.store.spellings import read_texts
from polarproxy.store.text import escape, unescape

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from sqlalchemy import Column, Connection, Engine

    from polarproxy.store.archive import Record

_ASKED_AT_ONCE = 500
_SHOWN = 20
"""Conflicts that are named; more of them are counted."""


def chosen_sessions(engine: Engine, *, group_id: str | None = None, ids: Sequence[str] = ()) -> list[str]:
    """The sessions of a group, or these, or all, oldest first; raises `NotFound` when a name has none."""
    query = select(sessions.c.session_id).order_by(sessions.c.created_at, sessions.c.session_id)
    if group_id is not None:
        query = query.where(sessions.c.group_id == group_id)
    with reading_from(engine) as connection:
        found = list(connection.execute(query).scalars())
    if group_id is not None and not found:
        raise NotFound(f"there is no session of group {group_id!r}")
    if not ids:
        return found
    for missing in sorted(set(ids) - set(found)):
        raise NotFound(f"there is no session {missing!r}; `polarproxy sessions list` shows those there are")
    return [session_id for session_id in found if session_id in set(ids)]


def write_sessions(engine: Engine, session_ids: Sequence[str], path: Path) -> Iterator[str]:
    """Writes an archive; yields each session's name when it is in it. The file is whole once the iterator has ended.

    Raises `StoreDamaged`, and `NotFound` for a session that has gone meanwhile.
    """
    models: set[str] = set()
    with ArchiveWriter(path, len(session_ids)) as archive:
        for session_id in session_ids:
            with reading_from(engine) as connection:
                session = read_session(connection, session_id)
                if session is None:
                    raise NotFound(f"session {session_id!r} is gone")
                archive.add(session)
                for call in read_calls(connection, session_id):
                    archive.add(call)
                    models.add(unescape(call.row["served_model"] or ""))
            yield session_id
        with reading_from(engine) as connection:
            for model in sorted(models):
                for texts in read_texts(connection, model):
                    archive.add(TextsEntry(escape(model), texts))


@dataclass(frozen=True, slots=True)
class Survey:
    """What an archive holds, next to what the database does."""

    new: frozenset[str]
    """Sessions that are not there."""
    known: int
    """Sessions that are there with the same content."""
    conflicts: tuple[str, ...]
    """Sessions that are there with another content, or of which another session has calls or responses."""

    def require_no_conflict(self) -> None:
        """Raises `StoreConflict` with the names of those that contradict the database."""
        if self.conflicts:
            more = "" if len(self.conflicts) <= _SHOWN else f" and {len(self.conflicts) - _SHOWN} more"
            raise StoreConflict(
                f"nothing was imported; {len(self.conflicts)} of its sessions are there with another content:"
                f" {', '.join(self.conflicts[:_SHOWN])}{more}"
            )


def survey(engine: Engine, path: Path) -> Survey:
    """Reads an archive to its end and touches nothing; raises `BadArchive` when any of it is wrong, `StoreDamaged`."""
    new: set[str] = set()
    seen: set[str] = set()
    conflicts: list[str] = []
    for session, entries in _sessions(read_archive(path)):
        session_id = session.session_id
        if session_id in seen:
            raise BadArchive(f"{path} holds session {session_id} twice")
        seen.add(session_id)
        digest, names = ContentDigest(), _Names()
        digest.add(check_session(session))
        for entry in entries:
            checked = check_call(session_id, entry).entry
            digest.add(checked)
            names.add(checked)
        with reading_from(engine) as connection:
            stored = content_digest(connection, session_id)
            if stored is None and not names.taken(connection):
                new.add(session_id)
            elif stored != digest.value():
                conflicts.append(session_id)
    return Survey(frozenset(new), len(seen) - len(new) - len(conflicts), tuple(conflicts))


class _Names:
    """Names of a session's calls and responses."""

    def __init__(self) -> None:
        self._calls: list[str] = []
        self._responses: list[str] = []

    def add(self, entry: CallEntry) -> None:
        self._calls.append(entry.call_id)
        self._responses.extend(unescape(response["response_id"]) for response in entry.responses)

    def taken(self, connection: Connection) -> bool:
        """Whether any of them is stored."""
        wanted = ((calls.c.call_id, self._calls), (responses.c.response_id, self._responses))
        return any(_stored(connection, column, names) for column, names in wanted)


def _stored(connection: Connection, column: Column[str], names: list[str]) -> bool:
    parts = (names[start : start + _ASKED_AT_ONCE] for start in range(0, len(names), _ASKED_AT_ONCE))
    return any(connection.execute(select(column).where(column.in_(part)).limit(1)).first() for part in parts)


def import_sessions(engine: Engine, path: Path, wanted: frozenset[str]) -> Iterator[str]:
    """Stores the wanted sessions of an archive, each whole; yields each name once it is committed.

    Raises `StoreConflict` when one has appeared since the survey, `BadArchive` when the file has changed since.
    """
    receiver = Receiver(engine)
    for session, entries in _sessions(read_archive(path), texts=receiver):
        if session.session_id in wanted:
            receiver.store(session, entries)
            yield session.session_id


def _sessions(
    records: Iterable[Record], texts: Receiver | None = None
) -> Iterator[tuple[SessionEntry, Iterator[CallEntry]]]:
    """Each session with its calls, which are read to the end even when nobody does; spellings go to `texts`."""
    waiting = iter(records)
    for record in waiting:
        if isinstance(record, TextsEntry):
            if texts is not None:
                texts.store_texts(unescape(record.model), record.texts)
            continue
        if isinstance(record, CallEntry):
            raise BadArchive(f"call {record.call_id} follows no session")
        entries = _calls(record, waiting)
        yield record, entries
        deque(entries, maxlen=0)


def _calls(session: SessionEntry, waiting: Iterator[Record]) -> Iterator[CallEntry]:
    found = 0
    for record in islice(waiting, session.calls):
        if not isinstance(record, CallEntry):
            break
        found += 1
        yield record
    if found != session.calls:
        raise BadArchive(
            f"session {session.session_id} has {counted(session.calls, 'call')}, the archive holds {found}"
        )
