"""Stops PostgreSQL hard, kills the proxy while it is away, starts both again, under load, and looks for what was lost.

    python -m tests.crash.kill_both [--rounds 100] [--clients 32] [--spool] [--seed N] [--work DIR]

With `--spool` the proxy is killed with records in its spool: the next one finds them, and perhaps one that was being written,
and stores them while it serves. Without one, clients are refused while the database is away.
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
    await stage.play(0.05, 0.2)
    await asyncio.to_thread(server.kill)
    await stage.play(0.1, 0.4)
    stage.kill_proxy()
    await asyncio.to_thread(server.start)
    await stage.start_proxy()
    # Now and then it is stopped again before everything is drained.
    if stage.rng.random() < 0.7:
        await stage.recovered()
        await stage.drained()


PROGRAM = Program("kill_both", __doc__, once, databases=("postgresql",))

if __name__ == "__main__":
    sys.exit(main(PROGRAM))
