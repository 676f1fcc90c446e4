"""What durable recording costs, next to a transaction for each request and to flushed lines of JSON.

    python -m tests.bench.store [--rounds N] [--quick] [--ids-only] [--no-postgres] [--json FILE] [--check]

Durable acknowledgements per second: 1, 32 or 128 producers, each of which waits until its call is on the disk before
it sends the next one of its session (prompts of 8,000 tokens in the mean, 200 sampled, a request body of the same
text). For every store alike, sessions are made before the clock runs, what another store left unwritten is flushed
before, and the event loop and the collector of garbage are those of `polarproxy serve`. Rounds are interleaved, figures
are medians, and what counts are the ratios of one run on one machine. The rivals store calls whole: per request,
SQLAlchemy inserts one row in one transaction (SQLite: WAL, `synchronous=FULL`, one thread; PostgreSQL: as many
connections as producers, at most 32). JSON lines hold what a recorder of JSON keeps of a call (all ids of prompt and
reply, log-probabilities, the request) and are fsync'd one by one: into one file, which is the least that is durable,
and as the one peer does that is durable before it answers (NVIDIA NeMo Gym's token store: a file for each session,
written by several threads, with lock, digest and index). Ours holds the same, and what is known of the call, in rows.
With `--ids-only` no store is given requests, as with `--keep-bodies none`: what that peer keeps, and what the prototypes
kept from which the goal comes.

SQLAlchemy against the bare driver: processor time of the same groups of 32 calls, inserted by the statements that
SQLAlchemy compiled once, and by `sqlite3` from the same rows with the least that must be done to them. Bytes: a session of
50 turns that grows to 55,000 tokens, against the same ids as JSON, and everything against everything. Cost by turn:
processor time of storing one call at turns 2 to 11 and 191 to 200 of the same sessions.

Exit status: 0, or with `--check` 1 when a goal is missed. The databases lie in `--work`, which should be a real disk.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import json
import os
import statistics
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import uvloop
from rich.console import Console
from rich.table import Table

from tests import postgres
from tests.bench.goals import Goal, as_json
from tests.bench.store_measure import Acks, Driver, Size, Turns, acks, driver, size, turns
from tests.bench.store_rivals import Jsonl, Ours, PerRequest, Rollouts, Store
from tests.database import fresh

if TYPE_CHECKING:
    from collections.abc import Iterator

FORMAT_VERSION = 1
CONCURRENCY = (1, 32, 128)
OURS, PER_REQUEST, JSONL = "polarproxy, SQLite", "per request, SQLite", "JSON lines, fsync"
ROLLOUTS = "JSON lines by session, fsync, index"
OURS_PG, PER_REQUEST_PG = "polarproxy, PostgreSQL", "per request, PostgreSQL"
_CONNECTIONS = 32

Round = dict[str, dict[int, Acks]]  # store -> producers -> measured


@dataclass(frozen=True)
class Results:
    rounds: list[Round]
    size: Size
    driver: Driver
    turns: Turns

    def ratio(self, ours: str, other: str, producers: int) -> float:
        """The median of the rounds' own ratios."""
        return statistics.median(
            one[ours][producers].per_second / one[other][producers].per_second for one in self.rounds
        )

    def goals(self) -> Iterator[Goal]:
        yield Goal("acks/s at 32 over fsync'd JSON lines", self.ratio(OURS, JSONL, 32), 18, at_least=True)
        yield Goal("acks/s at 32 over JSON lines by session", self.ratio(OURS, ROLLOUTS, 32), 18, at_least=True)
        if OURS_PG in self.rounds[0]:
            ratio = self.ratio(OURS_PG, PER_REQUEST_PG, 32)
            yield Goal("acks/s at 32 over per request, PostgreSQL", ratio, 3, at_least=True)
        yield Goal("compiled inserts over the bare driver, CPU", self.driver.ratio, 1.2, at_least=False)
        yield Goal("JSON over stored ids, bytes", self.size.ratio, 60, at_least=True)
        yield Goal("turn 200 over turn 2, CPU", self.turns.ratio, 1.2, at_least=False)


def stores(work: Path, server: postgres.Server | None) -> Iterator[Store]:
    yield Ours(OURS, fresh(work / "ours.db"))
    yield PerRequest(PER_REQUEST, fresh(work / "per-request.db"), 1)
    yield Jsonl(JSONL, work / "calls.jsonl")
    yield Rollouts(ROLLOUTS, work / "rollouts")
    if server is not None:
        yield Ours(OURS_PG, server.fresh())
        yield PerRequest(PER_REQUEST_PG, server.fresh(), _CONNECTIONS)


async def run_rounds(opened: list[Store], count: int, seconds: float, *, requests: bool) -> list[Round]:
    numbers = itertools.count()
    # As `polarproxy serve` does.
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)
    for store in opened:
        await acks(store, numbers, 8, 0.2, requests=requests)
    rounds: list[Round] = []
    for number in range(count):
        measured: Round = {store.name: {} for store in opened}
        turn = number % len(opened)
        for producers, store in itertools.product(CONCURRENCY, opened[turn:] + opened[:turn]):
            # What the one before left to be written is written now: the next one's flush would have to wait for it.
            os.sync()
            measured[store.name][producers] = await acks(store, numbers, producers, seconds, requests=requests)
        rounds.append(measured)
    return rounds


def run(options: argparse.Namespace, work: Path) -> Results:
    seconds = 0.4 if options.quick else 1.5
    with ExitStack() as stack:
        server = None
        if options.postgres and postgres.binaries() is not None:
            server = stack.enter_context(postgres.running(fsync="on", shared_buffers="256MB"))
        opened = list(stores(work, server))
        try:
            rounds = uvloop.run(run_rounds(opened, options.rounds, seconds, requests=not options.ids_only))
        finally:
            for store in opened:
                store.close()
    groups = 10 if options.quick else 40
    return Results(
        rounds=rounds,
        size=size(fresh(work / "size.db")),
        driver=driver(fresh(work / "core.db"), fresh(work / "bare.db"), groups),
        turns=turns(work, fresh),
    )


def table(results: Results) -> Table:
    out = Table(title=f"durable acknowledgements per second, median of {len(results.rounds)} interleaved rounds")
    out.add_column("store")
    for producers in CONCURRENCY:
        out.add_column(f"{producers} producers", justify="right")
    out.add_column("CPU per call at 32", justify="right")
    for name in results.rounds[0]:
        other = {OURS: JSONL, OURS_PG: PER_REQUEST_PG}.get(name)
        cells = []
        for producers in CONCURRENCY:
            rate = statistics.median(one[name][producers].per_second for one in results.rounds)
            ratio = "" if other is None else f" ({results.ratio(name, other, producers):.1f}x)"
            cells.append(f"{rate:,.0f}{ratio}")
        cpu = statistics.median(one[name][32].cpu_us for one in results.rounds)
        out.add_row(name, *cells, f"{cpu:,.0f} µs")
    return out


def figures(results: Results) -> Iterator[str]:
    weighed, inserts, by_turn = results.size, results.driver, results.turns
    yield (
        f"50 turns to 55k, bytes per token of {weighed.positions:,}: ids {weighed.ids:.3f}, as JSON {weighed.json_ids:.2f};"
        f" everything {weighed.everything:.2f}, as JSON {weighed.json_all:.1f}"
        f" ({weighed.json_all / weighed.everything:.0f}x)"
    )
    yield f"inserting a call, CPU: {inserts.core_us:.1f} µs, bare driver {inserts.bare_us:.1f} µs"
    yield f"storing a call alone, CPU: {by_turn.early_us:.0f} µs at turn 2, {by_turn.late_us:.0f} µs at turn 200"


def main() -> int:
    summary, _, description = (__doc__ or "").partition("\n")
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.store",
        description=summary,
        epilog=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rounds", type=int, help="interleaved rounds (3, or 1 with --quick)")
    parser.add_argument("--quick", action="store_true", help="shorter and less sure: under half a minute")
    parser.add_argument("--ids-only", action="store_true", help="calls without their requests")
    parser.add_argument("--no-postgres", dest="postgres", action="store_false", help="SQLite only")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure of every round here")
    parser.add_argument("--work", type=Path, metavar="DIR", help="where the databases go while it runs")
    parser.add_argument("--check", action="store_true", help="exit 1 when a goal is missed")
    options = parser.parse_args()
    options.rounds = options.rounds or (1 if options.quick else 3)
    console = Console(width=None if sys.stdout.isatty() else 150, highlight=False)
    with tempfile.TemporaryDirectory(prefix="polarproxy-bench-", dir=options.work) as work:
        results = run(options, Path(work))
    console.print(table(results))
    for line in figures(results):
        console.print(line)
    goals = list(results.goals())
    for goal in goals:
        console.print(str(goal))
    if options.json:
        options.json.write_text(json.dumps(as_json(FORMAT_VERSION, results, results.goals()), indent=1))
    return 1 if options.check and not all(goal.met for goal in goals) else 0


if __name__ == "__main__":
    sys.exit(main())
