"""A store as large as a real run, and what it costs to look at: processor time and memory of the commands people use.

    python -m tests.bench.scale [--sessions N] [--turns N] [--work DIR] [--postgres] [--check]

Loads sessions of an agent, whose prompts grow by what was sampled and what came back (8,000 tokens in the mean), through the
writer of the proxy, in groups of ten with a reward each. Then each command runs as a process of its own, as from a shell:

* processor time beyond the start of the interpreter and the imports, which stand beside it because a person waits for them
  too; goals: under 200 ms for `sessions list`, `calls show` and `export --group`;
* peak memory of exporting every session next to that of a tenth of them, which must be as large.

Exit status: 0, or with `--check` 1 when a goal is missed.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import track
from rich.table import Table

from polarproxy.model import Reward
from polarproxy.store.database import open_database
from polarproxy.store.items import Fact
from polarproxy.store.repository import Repository
from polarproxy.store.schema import DELIVERED
from polarproxy.store.writer import Writer
from tests import postgres
from tests.bench.canned import Size
from tests.bench.store_work import session_calls
from tests.database import fresh

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from concurrent.futures import Future

GROUP = 10
AT_ONCE = 20
"""Sessions that are recorded at the same time."""
ROUNDS = 3
LAUNCHER = """
import os, sys
pid = os.fork()
if not pid:
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    os.execv(sys.argv[1], sys.argv[1:])
_, status, used = os.wait4(pid, 0)
print(os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime, used.ru_maxrss)
"""
IMPORTS = """
import contextlib, gc, sys
from polarproxy.cli.main import build
from polarproxy.store.database import open_database
build(sys.argv[2:])
open_database(sys.argv[1])
with contextlib.suppress(ImportError):
    import typer._adapters
if "export" in sys.argv:
    import pyarrow.compute
gc.freeze()
"""
"""What the command line's library, Arrow and SQLAlchemy (the driver) import only when they are at work stands beside the work
too. Nothing is connected to. The end of a process costs as much as what it must look through for garbage, so that this one
does with it as the command line does."""
MOST_MS, MOST_MEMORY = 200.0, 1.2


@dataclass(frozen=True)
class Cost:
    """One command."""

    cpu_ms: float
    """User and system time of its process."""
    peak_mib: float


def shape(turns: int) -> Size:
    """An agent's session: 8,000 tokens in the mean, of which each turn adds a part."""
    return Size(f"8k, {turns} turns", 8_000, 100, variants=8, turns=turns, interstitial_tokens=140)


def load(url: str, sessions: int, size: Size) -> float:
    """Records the sessions; how many calls a second."""
    engine = open_database(url)
    started = time.monotonic()
    with closing(Writer(engine)) as writer:
        for first in track(range(0, sessions, AT_ONCE), "recording", console=Console(stderr=True)):
            numbers = range(first, min(first + AT_ONCE, sessions))
            waiting: list[Future[None]] = []
            for turn in zip(*(session_calls(size, number) for number in numbers), strict=True):
                for future in waiting:
                    future.result(60)
                waiting = []
                for number, new in zip(numbers, turn, strict=True):
                    session = replace(new.session, group_id=f"g{number // GROUP:04d}", task_id=f"t{number // GROUP}")
                    waiting.append(writer.submit(replace(new, session=session)))
                    writer.note(Fact(new.call.call_id, new.call.arrived_at, DELIVERED, "yes"))
    repository = Repository(engine)
    repository.add_rewards([(f"s{number:06d}", Reward(float(number % 3))) for number in range(sessions)])
    engine.dispose()
    return sessions * size.turns / (time.monotonic() - started)


def run(*arguments: str) -> Cost:
    """Runs Python with these arguments; raises `RuntimeError` when it fails."""
    # A process counts the memory of the one it was forked from as its own, so that a small one does it.
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", LAUNCHER, sys.executable, *arguments], stdout=subprocess.PIPE, check=True
    )
    status, seconds, kib = done.stdout.split()[-3:]
    if status != b"0":
        raise RuntimeError(f"{' '.join(arguments)} ended with {status.decode()}")
    return Cost(float(seconds) * 1e3, int(kib) / 1024)


def median(*arguments: str) -> Cost:
    """Of some rounds."""
    rounds = [run(*arguments) for _ in range(ROUNDS)]
    return Cost(statistics.median(one.cpu_ms for one in rounds), max(one.peak_mib for one in rounds))


def commands(out: Path) -> Iterator[tuple[tuple[str, ...], tuple[str, ...], bool]]:
    """Command, its arguments, and whether it must be fast."""
    yield ("sessions", "list"), (), True
    yield ("sessions", "list"), ("--limit", "0"), False
    yield ("sessions", "show"), ("s000000",), False
    yield ("calls", "list"), ("--session", "s000000"), False
    yield ("calls", "show"), ("c0000000020",), True
    yield ("export",), ("--group", "g0000", "--out", str(out / "group.parquet")), True
    yield ("db", "stats"), (), False


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    made = Table(*columns, title=title)
    for row in rows:
        made.add_row(*row)
    return made


def measure(url: str, out: Path, console: Console) -> bool:
    """Prints what each command costs; whether all goals are met."""
    rows, met = [], True
    for command, arguments, fast in commands(out):
        start = median("-c", IMPORTS, url, *command)
        whole = median("-m", "polarproxy", *command, *arguments, "--db", url)
        work = whole.cpu_ms - start.cpu_ms
        good = not fast or work < MOST_MS
        met = met and good
        verdict = "" if not fast else "met" if good else "missed"
        rows.append(
            (" ".join((*command, *arguments)), f"{start.cpu_ms:.0f}", f"{work:.0f}", f"{whole.peak_mib:.0f}", verdict)
        )
    console.print(f"the interpreter alone: {median('-c', 'pass').cpu_ms:.0f} ms")
    columns = ("command", "imports, ms CPU", "work, ms CPU", "peak MiB", f"goal: < {MOST_MS:.0f} ms")
    console.print(table("what a look costs", columns, rows))
    return met


def memory(part: str, whole: str, out: Path, console: Console) -> bool:
    """Prints the peak memory of exporting a part and the whole; whether they are alike."""
    export = ("-m", "polarproxy", "export", "--out", str(out / "all.parquet"), "--db")
    small, large = (run(*export, url) for url in (part, whole))
    ratio = large.peak_mib / small.peak_mib
    size = (out / "all.parquet").stat().st_size / 2**20
    console.print(
        f"exporting everything: peak {large.peak_mib:.0f} MiB, a tenth of it {small.peak_mib:.0f} MiB: {ratio:.2f}x,"
        f" goal ≤ {MOST_MEMORY}x; {large.cpu_ms / 1e3:.1f} s CPU, a file of {size:.0f} MiB"
    )
    return ratio <= MOST_MEMORY


def main() -> int:
    summary, _, description = (__doc__ or "").partition("\n")
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.scale",
        description=summary,
        epilog=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--sessions", type=int, default=1_000, help="default: 1000")
    parser.add_argument("--turns", type=int, default=50, help="calls of a session; default: 50")
    parser.add_argument("--postgres", action="store_true", help="on a PostgreSQL of its own, instead of SQLite")
    parser.add_argument("--work", type=Path, metavar="DIR", help="where the databases go while it runs")
    parser.add_argument("--check", action="store_true", help="exit 1 when a goal is missed")
    options = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else 150, highlight=False)
    with ExitStack() as stack:
        out = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="polarproxy-scale-", dir=options.work)))
        if options.postgres:
            server = stack.enter_context(postgres.running(shared_buffers="256MB"))
            part, whole = server.fresh(), server.fresh()
        else:
            part, whole = fresh(out / "part.db"), fresh(out / "whole.db")
        size = shape(options.turns)
        load(part, options.sessions // 10, size)
        rate = load(whole, options.sessions, size)
        console.print(f"{options.sessions} sessions of {options.turns} calls recorded, {rate:,.0f} calls a second")
        met = measure(whole, out, console)
        met = memory(part, whole, out, console) and met
    return 1 if options.check and not met else 0


if __name__ == "__main__":
    sys.exit(main())
