"""Holds what the proxy has to write to locked, under load, from another connection, and looks for what was lost.

    python -m tests.crash.lock_database [--rounds 100] [--clients 32] [--db sqlite|postgresql] [--spool] [--seed N] [--work DIR]

The write lock of the SQLite file, or the table of calls in PostgreSQL, is held for longer than the proxy waits for a commit
(0.3 s). Clients that are refused (503) ask again; with `--spool` nobody may be refused.
"""

from __future__ import annotations

import sqlite3
import sys
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

from polarproxy.store.database import open_database
from tests.crash.program import Program, main

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.crash.stage import Database, Stage


@contextmanager
def locked(database: Database) -> Iterator[None]:
    """Nobody else writes until the block ends."""
    if database.file is not None:
        with closing(sqlite3.connect(database.file, isolation_level=None, timeout=30.0)) as other:
            other.execute("BEGIN IMMEDIATE")
            yield
            other.execute("ROLLBACK")
        return
    engine = open_database(database.url)
    with engine.connect() as connection, connection.begin():
        connection.exec_driver_sql("LOCK TABLE calls IN ACCESS EXCLUSIVE MODE")
        yield
    engine.dispose()


async def once(stage: Stage) -> None:
    """One round."""
    await stage.play(0.05, 0.2)
    with locked(stage.database):
        await stage.play(0.4, 0.7)
    await stage.recovered()


PROGRAM = Program("lock_database", __doc__, once, patience=0.3)

if __name__ == "__main__":
    sys.exit(main(PROGRAM))
