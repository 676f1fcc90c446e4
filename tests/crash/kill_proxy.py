"""Kills the proxy at random moments under load and looks for what was lost.

    python -m tests.crash.kill_proxy [--rounds 50] [--clients 24] [--seed N] [--work DIR]

Each round starts `polarproxy serve` on the same SQLite file, lets the clients play multi-turn conversations (streams
and whole replies mixed; they go on where the last round cut them off), and sends SIGKILL 0.2 to 1.0 s later. In the end
every reply whose end a client saw (a whole body; a finish reason or `[DONE]`) must be in the store exactly once, in its
session, with the exact prompt ids, sampled ids and logprobs, and `polarproxy db verify` must find nothing. What this
cannot show is a power cut: a killed process leaves its writes to the system, so a missing fsync passes.

Exit status: 0 nothing lost; 1 something lost, wrong, refused or damaged.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import aiohttp
from rich.console import Console
from rich.progress import track

from polarproxy.store.database import open_database
from polarproxy.store.repository import Repository
from tests.bench.process import Child, free_port, start, wait_ready
from tests.bench.targets import serve_command
from tests.crash.check import Wrong, compare
from tests.crash.client import Harness, Refused, Seen
from tests.crash.engine import serving
from tests.crash.sampled import serial_of_ids

if TYPE_CHECKING:
    from polarproxy.model import CapturedCall

_FIRST_KILL, _LAST_KILL = 0.2, 1.0
_PLAY_SECONDS = 30.0
_VERIFY_SECONDS = 300


@dataclass(frozen=True)
class Outcome:
    """What a run found. `unseen` counts complete replies in the store whose end no client saw: allowed, and expected."""

    rounds: int
    seen: list[Seen]
    generated: int
    unseen: int
    wrong: list[Wrong]
    refused: list[str]
    verify_status: int
    verify_output: str

    @property
    def clean(self) -> bool:
        return not self.wrong and not self.refused and self.verify_status == 0

    def summary(self) -> str:
        streams = sum(seen.streamed for seen in self.seen)
        return (
            f"{self.rounds} kills: {len(self.seen)} replies seen to their end ({streams} streamed) of"
            f" {self.generated} generated, {len(self.wrong)} lost or wrong, {self.unseen} stored but not seen,"
            f" {len(self.refused)} refused; `db verify` exit status {self.verify_status}"
        )


async def _one_round(
    command: list[str], base: str, harnesses: list[Harness], seconds: float, log: Path
) -> list[BaseException]:
    """Starts the proxy, plays, kills it; what the harnesses raised."""
    child: Child
    child, _ = start(command, None, log)
    try:
        await asyncio.to_thread(wait_ready, child, f"{base}/readyz")
        timeout = aiohttp.ClientTimeout(total=_PLAY_SECONDS)
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(timeout=timeout, connector=connector) as http:
            playing = asyncio.gather(*(harness.play(http) for harness in harnesses), return_exceptions=True)
            await asyncio.sleep(seconds)
            child.process.kill()
            return [found for found in await playing if found is not None]
    finally:
        child.kill()


def stored_calls(url: str) -> list[CapturedCall]:
    """Every call of the database."""
    repository = Repository(open_database(url))
    return [call for session_id in repository.session_ids() for call in repository.calls(session_id)]


async def run(rounds: int, work: Path, *, seed: int, clients: int = 24, console: Console | None = None) -> Outcome:
    """Kills the proxy `rounds` times. Raises RuntimeError when it does not come up again."""
    rng = random.Random(seed)
    database, port = work / "polar.db", free_port()
    base = f"http://127.0.0.1:{port}"
    ledger: list[Seen] = []
    refused: list[str] = []
    async with serving(seed) as engine:
        command = serve_command(engine.port, port, database)
        harnesses = [Harness(base, ledger, random.Random(rng.random())) for _ in range(clients)]
        for _ in track(range(rounds), "killing", console=console, transient=True, disable=console is None):
            seconds = rng.uniform(_FIRST_KILL, _LAST_KILL)
            for error in await _one_round(command, base, harnesses, seconds, work / "polarproxy.log"):
                if not isinstance(error, Refused):
                    raise error
                refused.append(str(error))
        generated = engine.generated
    verify = [sys.executable, "-m", "polarproxy", "db", "verify", "--db", f"sqlite:///{database}"]
    verified = await asyncio.to_thread(
        subprocess.run, verify, capture_output=True, text=True, timeout=_VERIFY_SECONDS, check=False
    )
    stored = await asyncio.to_thread(stored_calls, f"sqlite:///{database}")
    known = {None, *(seen.serial for seen in ledger)}
    return Outcome(
        rounds=rounds,
        seen=ledger,
        generated=generated,
        unseen=sum(_complete(captured) not in known for captured in stored),
        wrong=list(compare(ledger, stored)),
        refused=refused,
        verify_status=verified.returncode,
        verify_output=verified.stdout + verified.stderr,
    )


def _complete(captured: CapturedCall) -> int | None:
    """The serial of a call that holds a whole reply; None of one that was cut."""
    completions = captured.call.completions
    if not completions or completions[0].finish_reason is None:
        return None
    return serial_of_ids(completions[0].token_ids)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.crash.kill_proxy",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--clients", type=int, default=24)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32), help="of the moments and the texts")
    parser.add_argument("--work", type=Path, metavar="DIR", help="keep database and logs here")
    options = parser.parse_args()
    console = Console()
    console.print(f"seed {options.seed}")
    with tempfile.TemporaryDirectory(prefix="polarproxy-crash-") as temporary:
        work = options.work or Path(temporary)
        work.mkdir(parents=True, exist_ok=True)
        outcome = asyncio.run(run(options.rounds, work, seed=options.seed, clients=options.clients, console=console))
    for line in (*map(str, outcome.wrong[:20]), *outcome.refused[:20]):
        console.print(f"[red]{line}", markup=True)
    if outcome.verify_status:
        console.print(outcome.verify_output)
    console.print(outcome.summary())
    return 0 if outcome.clean else 1


if __name__ == "__main__":
    sys.exit(main())
