"""What is in a spool, read without taking it from the proxy that has it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from polarproxy.errors import BadSpool, DamagedRecord
from polarproxy.store.items import Fact, NewCall
from polarproxy.store.spool_files import ReadFile, spool_files, spool_folders
from polarproxy.store.spool_opening import in_use
from polarproxy.store.spool_records import decode

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime
    from pathlib import Path

    from polarproxy.store.spool_files import Found


@dataclass(slots=True)
class FileReport:
    """One file. Records that the database has already are counted too, as long as the file is there."""

    name: str
    bytes: int
    database: str | None = None
    """Where its records are to be stored. None: not even its header can be read."""
    sessions: int = 0
    """Sessions that were made on purpose; calls make theirs."""
    calls: int = 0
    without_place: int = 0
    """Calls among them that have no place in their session yet."""
    facts: int = 0
    first_arrival: datetime | None = None
    """Of its calls. None: it has none."""
    last_arrival: datetime | None = None
    unreadable_bytes: int = 0
    """Damage, or a torn end behind its last whole record. What a proxy is writing at this moment is neither."""
    problem: str | None = None
    """What is wrong with a record that is whole. None: nothing is."""


def report(folder: Path) -> Iterator[FileReport]:
    """The files of a spool and of the workers' spools in it, oldest first, each record of them decoded.

    Raises `BadSpool` when there is no such folder.
    """
    if not folder.is_dir():
        raise BadSpool(f"there is no spool at {folder}")
    for place in spool_folders(folder):
        paths = spool_files(place)
        for path in paths:
            try:
                read = ReadFile(path)
            except FileNotFoundError:
                continue  # its last record was stored this moment
            try:
                yield _report(str(path.relative_to(folder)), read, growing=path == paths[-1])
            finally:
                read.close()


def _report(name: str, read: ReadFile, *, growing: bool) -> FileReport:
    """`growing`: whether a proxy that has the spool may write to the file."""
    found = FileReport(name, 0)
    try:
        for record in read.records():
            _count(found, record)
    except BadSpool as error:
        found.problem = str(error)
    found.bytes = read.size
    after = found.bytes - read.end
    found.unreadable_bytes = read.damaged
    if after and not (growing and in_use(read.path.parent)):
        found.unreadable_bytes += after
    found.database = None if read.header is None else read.header.database
    return found


def _count(found: FileReport, record: Found) -> None:
    try:
        item = decode(record.data)
    except DamagedRecord as error:
        found.problem = f"at {record.offset}: {error}"
        return
    if isinstance(item, Fact):
        found.facts += 1
    elif isinstance(item, NewCall):
        found.calls += 1
        found.without_place += item.place is not None
        arrived = item.call.arrived_at
        found.first_arrival = min(found.first_arrival or arrived, arrived)
        found.last_arrival = max(found.last_arrival or arrived, arrived)
    else:
        found.sessions += 1
