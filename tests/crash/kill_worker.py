"""Kills one of three workers at random moments under load and looks for what was lost.

    python -m tests.crash.kill_worker [--rounds 100] [--clients 32] [--spool] [--seed N] [--work DIR]

One `polarproxy serve --workers 3` serves throughout. Each round sends SIGKILL to a worker in the middle of its clients' turns;
its parent starts another one, which takes over the connections that wait, and nobody is refused. In the end every reply whose
end a client saw must be in the store exactly once, whichever worker it came from, in its session and in order.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import psutil

from tests.crash.program import Program, main

if TYPE_CHECKING:
    from tests.crash.stage import Stage


async def once(stage: Stage) -> None:
    """One round."""
    await stage.play(0.1, 0.6)
    workers = psutil.Process(stage.pid).children()
    stage.rng.choice(workers).kill()
    await stage.recovered()


PROGRAM = Program("kill_worker", __doc__, once, databases=("postgresql",), refuses=False, arguments=("--workers", "3"))

if __name__ == "__main__":
    sys.exit(main(PROGRAM))
