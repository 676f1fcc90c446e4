"""Holds the write lock of the SQLite file from another process, under load, and looks for what was lost.

    python -m tests.crash.lock_sqlite [--rounds 100] [--clients 32] [--spool] [--seed N] [--work DIR]

The lock is held for longer than the proxy waits for a commit (`--store-timeout 0.3`). Clients that are refused (503) ask
again; with `--spool` nobody may be refused.
"""

from __future__ import annotations

import sqlite3
import sys
from contextlib import closing
from typing import TYPE_CHECKING

from tests.crash.program import Program, main

if TYPE_CHECKING:
    from tests.crash.stage import Stage


async def once(stage: Stage) -> None:
    """One round."""
    assert stage.database.file is not None
    await stage.play(0.05, 0.2)
    with closing(sqlite3.connect(stage.database.file, isolation_level=None, timeout=30.0)) as other:
        other.execute("BEGIN IMMEDIATE")
        await stage.play(0.4, 0.7)
        other.execute("ROLLBACK")
    await stage.recovered()


PROGRAM = Program("lock_sqlite", __doc__, once, databases=("sqlite",), arguments=("--store-timeout", "0.3"))

if __name__ == "__main__":
    sys.exit(main(PROGRAM))
