"""What a file of a spool holds that another process left, and what a crash did to it."""

from __future__ import annotations

import logging
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from polarproxy.errors import BadSpool, DamagedRecord
from polarproxy.store.spool_files import TORN, ReadFile
from polarproxy.store.spool_records import Subject, decode, subject

if TYPE_CHECKING:
    from pathlib import Path

log = logging.getLogger(__name__)

_NOTHING = Subject(None, None, None, None)
"""Of a record that cannot be read."""


@dataclass(frozen=True, slots=True)
class LoadedRecord:
    """A whole record."""

    offset: int
    """Of its bytes."""
    length: int
    about: Subject
    why_unread: str | None
    """None: it can be read."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """A file."""

    path: Path
    database: str
    """Where its records are to be stored; empty when it holds none, or does not say."""
    records: tuple[LoadedRecord, ...]
    torn: int
    """Bytes behind the last whole record, which were cut off."""
    damaged: int
    """Bytes that are not what was written."""


def load_file(path: Path, database: str | None, *, last: bool) -> Loaded:
    """Reads a file, and cuts off what a crash tore. `database` names where the records are to be stored (None: wherever they
    say), `last` whether it is the newest file of its spool.

    Raises `OSError`, and `BadSpool` when it is none of ours or its records belong to another database.
    """
    with closing(ReadFile(path)) as read:
        records = tuple(_record(path, found.offset, found.data) for found in read.records())
        meant = _database_of(read, database) if records else ""
        # A crash leaves a torn end, and only in the last file.
        after = read.size - read.end
        damaged = read.damaged + (0 if last else after)
        if damaged:
            log.error("%s is damaged: %d bytes of it cannot be read", path, damaged)
        if last and after:
            _cut_off(path, read.end, after)
    return Loaded(path, meant, records, after if last else 0, damaged)


def _record(path: Path, offset: int, data: bytes) -> LoadedRecord:
    try:
        return LoadedRecord(offset, len(data), subject(decode(data)), None)
    except DamagedRecord as error:
        return LoadedRecord(offset, len(data), _NOTHING, f"{path}, at {offset}: {error}")


def _database_of(read: ReadFile, wanted: str | None) -> str:
    said = None if read.header is None else read.header.database
    if wanted not in (None, said):
        folder = read.path.parent
        raise BadSpool(
            f"{folder} holds records for {said or 'nobody knows which database'}, not for {wanted}; store"
            f" them where they belong: polarproxy db spool drain {folder} --db {said or 'URL --force'}; or with"
            " --force in a database of your choice"
        )
    return said or ""


def _cut_off(path: Path, end: int, after: int) -> None:
    """What is cut off is kept beside the file for people to look at."""
    log.warning("%s ends in %d bytes that are no whole record; they are cut off", path, after)
    with path.open("r+b") as opened:
        opened.seek(end)
        path.with_name(f"{path.name}.{end}{TORN}").write_bytes(opened.read())
        opened.truncate(end)
