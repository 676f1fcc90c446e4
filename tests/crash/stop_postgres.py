"""Stops PostgreSQL as `pg_ctl stop -m immediate` does, under load, starts it again, and looks for what was lost.

    python -m tests.crash.stop_postgres [--rounds 100] [--clients 32] [--spool] [--seed N] [--work DIR]

The proxy keeps running. Clients that are refused (503) ask again; with `--spool` nobody may be refused. Each round ends
when replies are seen again: the proxy has to recover by itself.
"""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

from tests.crash.program import Program, main

if TYPE_CHECKING:
    from tests.crash.stage import Stage


async def once(stage: Stage) -> None:
    """One round."""
    server = stage.database.server
    assert server is not None
    await stage.play(0.05, 0.3)
    await asyncio.to_thread(server.kill)
    await stage.play(0.0, 0.3)
    await asyncio.to_thread(server.start)
    # Now and then it is stopped again at once: while a spool is being drained.
    if stage.rng.random() < 0.6:
        await stage.recovered()
        await stage.drained()


PROGRAM = Program("stop_postgres", __doc__, once, databases=("postgresql",))

if __name__ == "__main__":
    sys.exit(main(PROGRAM))
