"""The files of a SQLite database are there under their names, so that what is committed is found again. Nothing for others."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from polarproxy.store.opened_file import OpenedFile
from polarproxy.store.opened_log import OpenedLog

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Engine


class OpenedFiles:
    """For one thread; each question raises `StoreUnavailable`."""

    def __init__(self, engine: Engine, let_go: Callable[[], None]) -> None:
        """`let_go` closes the connections of this process that nobody uses at the moment."""
        self._let_go = let_go
        self._file: OpenedFile | None = None
        self._log: OpenedLog | None = None
        if engine.dialect.name == "sqlite":
            path = Path(engine.url.database or "")
            self._file, self._log = OpenedFile(path), OpenedLog(path)
            self._log.watch(engine)

    def require(self) -> None:
        """Both."""
        self.require_file()
        self.require_log()

    def require_file(self) -> None:
        """The database is the one that was opened."""
        if self._file is not None:
            self._file.require()

    def require_log(self) -> None:
        """Its log is, or what that held is saved."""
        if self._log is not None and not self._log.in_place:
            self._log.save(self._let_go)

    def close(self) -> None:
        """Saves what is to be saved, and lets go."""
        if self._log is not None:
            self._log.close(self._let_go)
