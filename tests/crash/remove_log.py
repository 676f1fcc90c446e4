"""Removes SQLite's log, its index or both under load, kills the proxy a moment later, and looks for what was lost.

    python -m tests.crash.remove_log [--rounds 100] [--clients 32] [--seed N] [--work DIR]

Each round starts `polarproxy serve` on the same database and lets the clients play. The files go while calls are being
committed; the proxy is killed when it had time to notice, and what it acknowledged before and after is there. Requests that
need another connection to the database before the log is saved are refused (503) and ask again.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from tests.crash.program import Program, main

if TYPE_CHECKING:
    from tests.crash.stage import Stage

FILES = (("-wal",), ("-shm",), ("-wal", "-shm"))


async def once(stage: Stage) -> None:
    """One round."""
    await stage.start_proxy()
    await stage.play(0.2, 0.6)
    file = stage.database.file
    assert file is not None
    for ending in stage.rng.choice(FILES):
        file.with_name(file.name + ending).unlink()
    await stage.recovered()
    await stage.play(0.1, 0.4)
    stage.kill_proxy()


PROGRAM = Program("remove_log", __doc__, once, databases=("sqlite",), keeps_running=False, surely=False)

if __name__ == "__main__":
    sys.exit(main(PROGRAM))
