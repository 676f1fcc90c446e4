"""Kills the proxy at random moments under load and looks for what was lost.

    python -m tests.crash.kill_proxy [--rounds 100] [--clients 32] [--db sqlite|postgresql] [--spool] [--seed N] [--work DIR]

Each round starts `polarproxy serve` on the same database, lets the clients play multi-turn conversations (streams
and whole replies mixed; they go on where the last round cut them off), and sends SIGKILL 0.2 to 0.8 s later. The thread
that writes dies with it: it is no process of its own. In the end every reply whose end a client saw (a whole body; a
finish reason or `[DONE]`) must be in the store exactly once, in its session, in order, with the exact prompt ids, sampled
ids and logprobs, and `polarproxy db verify` must find nothing. What this cannot show is a power cut: a killed process
leaves its writes to the system, so a missing fsync passes.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from tests.crash.program import Program, main

if TYPE_CHECKING:
    from tests.crash.stage import Stage


async def once(stage: Stage) -> None:
    """One round."""
    await stage.start_proxy()
    await stage.play(0.2, 0.8)
    stage.kill_proxy()


PROGRAM = Program("kill_proxy", __doc__, once, refuses=False, keeps_running=False)

if __name__ == "__main__":
    sys.exit(main(PROGRAM))
