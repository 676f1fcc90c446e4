"""A crash test as a program: rounds of one kind of trouble, then the comparison of ledger and store.

Exit status: 0 nothing lost; 1 something lost, doubled, torn, out of order, oddly answered or damaged; 2 wrong use.
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

from rich.console import Console
from rich.progress import track

from polarproxy.model import CallStatus
from polarproxy.store.database import open_database
from polarproxy.store.repository import Repository
from tests.crash.check import Wrong, compare, serial_of
from tests.crash.stage import Database, Stage, a_database, a_stage
from tests.database import KINDS

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Awaitable, Callable
    from contextlib import AbstractContextManager

    from polarproxy.model import CapturedCall
    from tests.crash.client import Seen

_VERIFY_SECONDS = 300
MIN_CLIENTS = 32


@dataclass(frozen=True)
class Program:
    """One kind of trouble."""

    name: str
    about: str
    """The docstring of its module."""
    round: Callable[[Stage], Awaitable[None]]
    """Causes the trouble once, and ends it."""
    databases: tuple[str, ...] = KINDS
    refuses: bool = True
    """Whether 503 is right while it lasts, when there is no spool."""
    surely: bool = True
    """Whether somebody is refused in any few rounds."""
    keeps_running: bool = True
    """Whether the proxy is to serve when a round begins."""
    patience: float = 10.0
    """Seconds that the proxy waits for the database; what happens may last longer."""
    arguments: tuple[str, ...] = ()
    """More of them for `polarproxy serve`."""
    place: Callable[[str, Path], AbstractContextManager[Database]] = a_database
    """Makes the database."""


@dataclass(frozen=True)
class Outcome:
    """What a run found. `unseen` counts complete replies in the store whose end no client saw: allowed, and expected."""

    rounds: int
    seen: list[Seen]
    generated: int
    unseen: int
    wrong: list[Wrong]
    refusals: Counter[str]
    """What those who were to try again were told, and how many."""
    may_refuse: bool
    odd: list[str]
    verify_status: int
    verify_output: str

    @property
    def clean(self) -> bool:
        """Whether nothing is as it should not be."""
        return not self.faults

    @property
    def faults(self) -> list[str]:
        """Everything that is wrong, in words."""
        found = [*map(str, self.wrong), *self.odd]
        if not self.may_refuse:
            found += [f"{count} requests were refused: {said}" for said, count in self.refusals.most_common()]
        if self.verify_status:
            found.append(f"`db verify` exit status {self.verify_status}: {self.verify_output}")
        return found

    def summary(self) -> str:
        """One line."""
        streams = sum(one.streamed for one in self.seen)
        return (
            f"{self.rounds} rounds: {len(self.seen)} replies seen to their end ({streams} streamed) of"
            f" {self.generated} generated, {len(self.wrong)} lost, doubled, torn or out of order, {self.unseen} stored but"
            f" not seen, {self.refusals.total()} refused for now, {len(self.odd)} odd answers; `db verify` exit status"
            f" {self.verify_status}"
        )


def stored_calls(url: str) -> list[CapturedCall]:
    """Every call of the database."""
    engine = open_database(url)
    repository = Repository(engine)
    found = [call for session_id in repository.session_ids() for call in repository.calls(session_id)]
    engine.dispose()
    return found


async def run(
    program: Program,
    rounds: int,
    work: Path,
    *,
    seed: int,
    kind: str = "sqlite",
    clients: int = MIN_CLIENTS,
    spool: bool = False,
    console: Console | None = None,
) -> Outcome:
    """Runs so many rounds. Raises RuntimeError or TimeoutError when the proxy does not recover."""
    # The database has a third of the time when there is a spool.
    arguments = [*program.arguments, "--store-timeout", str(program.patience * 3 if spool else program.patience)]
    arguments += ["--spool", str(work / "spool")] if spool else []
    with program.place(kind, work) as database:
        async with a_stage(database, work, arguments, seed=seed, clients=clients) as stage:
            if program.keeps_running:
                await stage.start_proxy()
            for _ in track(range(rounds), program.name, console=console, transient=True, disable=console is None):
                await program.round(stage)
            if not stage.running:
                await stage.start_proxy()
            await stage.finish()
        verify = [sys.executable, "-m", "polarproxy", "db", "verify", "--db", database.url]
        verified = await asyncio.to_thread(
            subprocess.run, verify, capture_output=True, text=True, timeout=_VERIFY_SECONDS, check=False
        )
        stored = await asyncio.to_thread(stored_calls, database.url)
    known = {one.serial for one in stage.ledger.seen}
    whole = [captured for captured in stored if captured.call.status is CallStatus.COMPLETED]
    return Outcome(
        rounds=rounds,
        seen=stage.ledger.seen,
        generated=stage.engine.generated,
        unseen=sum(serial_of(captured) not in known for captured in whole),
        wrong=list(compare(stage.ledger.seen, stored)),
        refusals=stage.ledger.refusals,
        may_refuse=program.refuses and not spool,
        odd=stage.ledger.odd,
        verify_status=verified.returncode,
        verify_output=verified.stdout + verified.stderr,
    )


def main(program: Program) -> int:
    """The command line of a program."""
    parser = argparse.ArgumentParser(
        prog=f"python -m tests.crash.{program.name}",
        description=program.about,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--clients", type=int, default=MIN_CLIENTS)
    parser.add_argument("--db", choices=program.databases, default=program.databases[0], help="kind of database")
    parser.add_argument("--spool", action="store_true", help="serve with a spool: then nobody may be refused at all")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32), help="of the moments and the texts")
    parser.add_argument("--work", type=Path, metavar="DIR", help="keep database and logs here")
    options = parser.parse_args()
    console = Console()
    console.print(f"seed {options.seed}")
    with tempfile.TemporaryDirectory(prefix="polarproxy-crash-") as temporary:
        work = options.work or Path(temporary)
        work.mkdir(parents=True, exist_ok=True)
        try:
            outcome = asyncio.run(_run(program, options, work, console))
        except (RuntimeError, TimeoutError) as error:
            why = str(error) or "nothing came any more"
            console.print(f"it did not recover: {why}", style="red", markup=False, soft_wrap=True)
            return 1
    for fault in outcome.faults[:40]:
        console.print(fault, style="red", markup=False, soft_wrap=True)
    console.print(outcome.summary(), markup=False, soft_wrap=True)
    return 0 if outcome.clean else 1


async def _run(program: Program, options: argparse.Namespace, work: Path, console: Console) -> Outcome:
    return await run(
        program,
        options.rounds,
        work,
        seed=options.seed,
        kind=options.db,
        clients=options.clients,
        spool=options.spool,
        console=console,
    )
