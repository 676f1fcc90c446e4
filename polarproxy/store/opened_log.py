"""Whether SQLite's log is still the one that was opened, and what to do when it is not.

What was committed last stands in `FILE-wal` and not yet in `FILE`. Who removes or replaces the log leaves those who have it
open with one that has no name any more: they go on to write to it, and all of it would be gone when they end. As long as one
of them is there, what it holds can be brought into the database.
"""

from __future__ import annotations

import logging
import sqlite3
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sqlalchemy import event

from polarproxy.errors import StoreUnavailable
from polarproxy.store.opened_file import look

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from sqlalchemy import Engine

    from polarproxy.store.opened_file import Identity

_log = logging.getLogger(__name__)
_TRIES, _PAUSE_S = 10, 0.05
"""How often it is tried to be alone with the database: whoever reads it has it for a moment."""
_BUSY_S = 1.0
_OPEN = "SELECT count(*) FROM sqlite_master"
"""Whoever reads has the log open from then on."""


@dataclass(slots=True)
class OpenedLog:
    """The log of a database and the index of the log, held open so that they can be saved.

    SQLite removes both when the last connection closes, which cannot be while this one is there. One thread checks and saves.
    """

    database: Path
    _held: sqlite3.Connection | None = None
    _known: tuple[Identity | None, ...] = ()
    """Of the log and its index. None: there was no such file, as where a database keeps no log."""
    _names: tuple[Path, ...] = field(init=False)
    _lost: bool = False
    """Whether there is a log to be saved."""

    def __post_init__(self) -> None:
        # SQLite puts them beside the file that a link leads to.
        file = self.database.resolve()
        self._names = tuple(file.with_name(file.name + ending) for ending in ("-wal", "-shm"))

    def watch(self, engine: Engine) -> None:
        """No connection is opened while the log is not in place: it would have another one than those that there are."""
        event.listen(engine.pool, "connect", self._admit, insert=True)
        event.listen(engine.pool, "checkin", self._take_back)

    @property
    def in_place(self) -> bool:
        """Whether both files still have their names. Opens them where that was not done; raises `StoreUnavailable`."""
        if self._held is None:
            self._hold()
        return self._unchanged

    def save(self, let_go: Callable[[], None]) -> None:
        """Brings what was committed into the database, and begins another log.

        `let_go` closes the connections of this process that nobody uses at the moment. Raises `StoreUnavailable` while others
        use the database: they have the old log open, and there would be two.
        """
        held = self._held
        assert held is not None
        self._lost = True
        try:
            # All of it or nothing: a checkpoint beside somebody who reads leaves pages out, which the log would still have.
            _begin_another(held, let_go)
        except sqlite3.Error as error:
            raise StoreUnavailable(
                f"{self._said()}; it is saved and made anew when nothing else has the database open (now: {error})"
            ) from error
        self._known, self._lost = self._look(), False
        _log.warning("%s; what it held was saved, and there is a new one", self._said())

    def close(self, let_go: Callable[[], None]) -> None:
        """Saves what the log holds, if it is not in place, and lets go of it."""
        if self._held is None:
            return
        # What others hold up is saved by whichever connection closes last, this one or another.
        with suppress(StoreUnavailable):
            if not self._unchanged:
                self.save(let_go)
        self._held.close()
        self._held = None

    @property
    def _unchanged(self) -> bool:
        return self._known == self._look()

    def _look(self) -> tuple[Identity | None, ...]:
        return tuple([look(name) for name in self._names])

    def _said(self) -> str:
        return f"the log of {self.database} ({self._names[0].name}) was removed or replaced while it was in use"

    def _hold(self) -> None:
        held = sqlite3.connect(self.database, _BUSY_S, isolation_level=None, check_same_thread=False)
        try:
            held.execute(_OPEN).fetchall()
            self._known = self._look()
        except (sqlite3.Error, StoreUnavailable) as error:
            held.close()
            raise StoreUnavailable(f"{self.database} cannot be read: {error}") from error
        self._held = held

    def _admit(self, connection: Any, _record: object) -> None:
        if self._held is None:
            return
        with suppress(sqlite3.Error):
            connection.execute(_OPEN).fetchall()
        try:
            if not self._unchanged:
                raise StoreUnavailable(f"{self._said()}; it is saved within a second")
        except StoreUnavailable:
            connection.close()
            raise

    def _take_back(self, _connection: object, record: Any) -> None:
        """Who used one that has the old log leaves it to nobody else."""
        if self._lost:
            record.invalidate()


def _begin_another(held: sqlite3.Connection, let_go: Callable[[], None]) -> None:
    """A database changes to keeping no log only for the one connection that has it, which is how that can be known."""
    for left in reversed(range(_TRIES)):
        let_go()
        try:
            held.execute("PRAGMA journal_mode=DELETE")
            break
        except sqlite3.OperationalError:
            if left == 0:
                raise
        time.sleep(_PAUSE_S)
    held.execute("PRAGMA journal_mode=WAL")
    held.execute(_OPEN).fetchall()
