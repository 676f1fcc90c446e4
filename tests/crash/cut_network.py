"""Makes PostgreSQL fall silent under load, as behind a cut cable, lets it go on, and looks for what was lost.

    python -m tests.crash.cut_network [--rounds 100] [--clients 32] [--spool] [--seed N] [--work DIR]

All processes of the server are suspended (SIGSTOP) for longer than the proxy waits for a commit (0.3 s):
whether a call that was under way was committed shows only later. Clients that are refused (503) ask again; with
`--spool` nobody may be refused.
"""

from __future__ import annotations

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
    with server.frozen():
        await stage.play(0.4, 0.8)
    await stage.recovered()
    if stage.rng.random() < 0.5:
        await stage.drained()


PROGRAM = Program("cut_network", __doc__, once, databases=("postgresql",), patience=0.3)

if __name__ == "__main__":
    sys.exit(main(PROGRAM))
