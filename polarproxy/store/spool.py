"""A folder of records that are on the disk and wait for the database; one process at a time has it.

Records are appended to the newest file. Each leaves when it is stored, and a file goes when all that it held has left; what a
crash leaves behind is read again, and given to the database again, which knows what it has. A record that the database
will never take stays, in a file of its own, and is told.
"""

from __future__ import annotations

import logging
import threading
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from polarproxy.errors import DamagedRecord
from polarproxy.model.plurals import counted
from polarproxy.store.items import NewCall
from polarproxy.store.spool_files import SUFFIX, AppendFile, ReadFile
from polarproxy.store.spool_index import Held, Index, Refusal
from polarproxy.store.spool_records import decode

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path
    from typing import IO

    from polarproxy.store.items import Item
    from polarproxy.store.places import Place
    from polarproxy.store.spool_loading import Loaded
    from polarproxy.store.spool_records import Subject

log = logging.getLogger(__name__)

FILE_BYTES = 1 << 20
"""A file that is larger gets no more records. After a crash, what was stored of one file is read again."""


@dataclass(slots=True)
class _File:
    path: Path
    database: str
    """Where its records are to be stored."""
    records: int = 0
    held: int = 0
    """Records in it that did not leave."""
    kept: bool = False
    """Whether it stays although nothing in it is to be stored: a record was refused, or something in it could not be read."""


@dataclass
class Spool:
    """Use `open_spool`. `append` is for one thread; everything else may be called from any."""

    folder: Path
    database: str | None
    """Where its records are to be stored. None: wherever they are to go now."""
    _lock: IO[bytes]
    away: bool = False
    """Whether the database is not to be asked: what comes goes into the spool."""
    torn: int = 0
    """Bytes that a crash left behind the last whole record, which were cut off."""
    damaged: int = 0
    """Bytes in files that were found which are not what was written."""
    refused: list[Refusal] = field(default_factory=list)
    _appending: threading.Lock = field(default_factory=threading.Lock)
    _guard: threading.Lock = field(default_factory=threading.Lock)
    _index: Index = field(default_factory=Index)
    _files: dict[int, _File] = field(default_factory=dict)
    _last: int = 0
    _open: AppendFile | None = None
    _looking: threading.Lock = field(default_factory=threading.Lock)
    _reading: tuple[int, ReadFile] | None = None
    """The file that was read last, by its number."""

    def __len__(self) -> int:
        return len(self._index)

    @property
    def size(self) -> int:
        """Bytes of the records that wait."""
        return self._index.bytes

    @property
    def warnings(self) -> list[str]:
        """What somebody should know of it, in words."""
        found = []
        if self.away:
            found.append(
                f"the database is away; waiting for it: {counted(len(self), 'record')} in the spool {self.folder}"
            )
        if self.refused:
            found.append(
                f"the database refuses {counted(len(self.refused), 'record')} of the spool {self.folder}, which keeps them"
            )
        if self.torn:
            found.append(f"{self.torn} bytes in the spool {self.folder} were no whole records; they are kept there")
        if self.damaged:
            found.append(f"{self.damaged} bytes in the spool {self.folder} are damaged; their files are kept there")
        return found

    def holds_session(self, session_id: str) -> bool:
        """Whether the session, or a call of it, waits."""
        return self._index.holds_session(session_id)

    def holds_call(self, call_id: str) -> bool:
        """Whether the call, or a fact of it, waits."""
        return self._index.holds_call(call_id)

    def next_ordinal(self, session_id: str) -> int:
        """The ordinal beyond those of all calls of a session that wait; 0 when none does."""
        return self._index.next_ordinal(session_id)

    def append(self, records: Sequence[tuple[bytes, Subject]]) -> None:
        """Returns when they are on the disk; raises `OSError`, and then none of them is in the spool."""
        with self._appending:
            if self._open is not None and self._open.size > FILE_BYTES:
                self._end_file()
            opened = self._open or self._begin_file()
            try:
                offsets = opened.append([data for data, _ in records])
            except OSError:
                # After a failed flush nobody knows what is on the disk: nothing more goes into this file.
                self._end_file()
                raise
            with self._guard:
                for (data, about), offset in zip(records, offsets, strict=True):
                    self._hold(self._last, offset, len(data), about)

    def _begin_file(self) -> AppendFile:
        number = self._last + 1
        opened = AppendFile(self._path(number), self.database or "")
        with self._guard:
            self._files[number] = _File(opened.path, self.database or "")
            self._open, self._last = opened, number
        return opened

    def _path(self, number: int) -> Path:
        return self.folder / f"{number:010}{SUFFIX}"

    def _end_file(self) -> None:
        with self._guard:
            assert self._open is not None
            self._open.close()
            self._open = None
            self._drop_if_empty(self._last)

    def _hold(self, file: int, offset: int, length: int, about: Subject) -> Held:
        self._files[file].records += 1
        self._files[file].held += 1
        return self._index.add(file, offset, length, about)

    def oldest(self, count: int) -> list[Held]:
        """The first records, in the order in which they came."""
        with self._guard:
            return self._index.oldest(count)

    def places(self) -> list[Place]:
        """Of the calls that came without one."""
        with self._guard:
            return self._index.places()

    def read(self, held: Held) -> Item:
        """The item of a record, as it was given; raises `DamagedRecord`."""
        with self._looking:
            if self._reading is None or self._reading[0] != held.file:
                self._stop_reading()
                self._reading = (held.file, ReadFile(self._files[held.file].path))
            data = self._reading[1].read(held.offset)
        item = decode(data)
        return replace(item, place=held.about.place) if isinstance(item, NewCall) else item

    def _stop_reading(self) -> None:
        if self._reading is not None:
            self._reading[1].close()
            self._reading = None

    def done(self, held: Iterable[Held]) -> None:
        """These are stored."""
        with self._guard:
            for one in held:
                self._let_go(one)
        if not self._index:
            with self._appending:
                if not self._index and self._open is not None:
                    self._end_file()

    def refuse(self, held: Held, why: str) -> None:
        """The database will not take this one. It stays, in a file of its own: what is stored must not stay with it."""
        log.error("the spool keeps a record that the database refuses: %s", why)
        with self._appending:
            if self._open is not None:
                self._end_file()
            apart = self._set_apart(held)
            with self._guard:
                self._files[held.file].kept |= not apart
                self.refused.append(Refusal(held, why))
                self._let_go(held)

    def _set_apart(self, held: Held) -> bool:
        """Whether the record has got another file, of its own. No file is open."""
        file = self._files[held.file]
        if file.records == 1:
            return False
        self._last += 1
        try:
            with closing(ReadFile(file.path)) as read:
                data = read.read(held.offset)
            with closing(AppendFile(self._path(self._last), file.database)) as opened:
                opened.append([data])
        except (OSError, DamagedRecord) as error:
            log.error("it stays where it is, with all of %s: %s", file.path, error)
            return False
        with self._guard:
            self._files[self._last] = _File(opened.path, file.database, records=1, kept=True)
        return True

    def _let_go(self, held: Held) -> None:
        self._index.remove(held)
        self._files[held.file].held -= 1
        self._drop_if_empty(held.file)

    def _drop_if_empty(self, number: int) -> None:
        file = self._files.get(number)
        if file is None or file.held or file.kept or (self._open is not None and number == self._last):
            return
        file.path.unlink()
        del self._files[number]

    def close(self) -> None:
        """Lets the folder go; what it holds stays. Again is nothing."""
        if self._lock.closed:
            return
        if self._open is not None:
            self._end_file()
        with self._looking:
            self._stop_reading()
        self._lock.close()

    def take_in(self, loaded: Loaded) -> list[tuple[Held, str]]:
        """A file that was found in the folder. Gives the records in it that cannot be read, and why."""
        number, unread = int(loaded.path.stem), []
        self._last = max(self._last, number)
        self._files[number] = _File(loaded.path, loaded.database, kept=loaded.damaged > 0)
        self.damaged += loaded.damaged
        self.torn += loaded.torn
        for record in loaded.records:
            held = self._hold(number, record.offset, record.length, record.about)
            if record.why_unread is not None:
                unread.append((held, record.why_unread))
        self._drop_if_empty(number)
        return unread
