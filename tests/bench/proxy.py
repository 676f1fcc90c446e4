"""What polarproxy costs, next to nginx and to a bare aiohttp pass-through, over the same canned engine.

    python -m tests.bench.proxy [--rounds N] [--quick] [--ask] [--json FILE] [--check]

Every target has one core to itself; the load client (this process) and the engine share another. Rounds are
interleaved (A B C, B C A, …), figures are medians, and what counts are the ratios to nginx of the same round: absolute
times belong to one machine. CPU time is the scheduler's account of the target's whole process tree, so the database
thread, compression and the work after the last byte are in it. polarproxy records to SQLite with `synchronous=FULL`
and withholds each reply's end until it is committed, as in production; its database is in `--work` (the system's
temporary directory), which should be a real disk.

The client asks for what an ordinary harness asks for, so polarproxy also injects and cuts out the token ids and
logprobs; the others relay them all. Ratios are to nginx with buffers of 64 KiB; nginx with its default
buffers, which costs more, stands beside it. `--ask` measures a client that wants them for itself. The history in a request's
messages is as long as its prompt; prompts differ by conversation, turn and session (`canned.py` says how), and each
session has an API key of its own. "Added" is over the bare engine in the same round. An event's latency is its arrival
minus the send time written in it. RSS growth is taken on freshly started targets with 200 streams open at once.

Exit status: 0; 1 when a reply was not complete, or with `--check` when a goal is missed.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import tempfile
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import uvloop
from rich.console import Console
from rich.progress import Progress, TextColumn, TimeElapsedColumn

from tests.bench.canned import SIZES
from tests.bench.load import Client, Load, Measured, Requests, loads
from tests.bench.memory import Growth, measure_growth
from tests.bench.process import Bystanders, Child, Cores, start
from tests.bench.report import Results, Round, missed_goals, table
from tests.bench.report import as_json as results_json
from tests.bench.targets import Running, Target, all_targets, running

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def engine(work: Path, cores: Cores) -> Iterator[tuple[Child, int]]:
    """A started canned engine and its port."""
    child, port = start([sys.executable, "-m", "tests.bench.engine"], cores.load, work / "engine.log", read_port=True)
    try:
        yield child, port
    finally:
        child.stop()


async def run_rounds(
    targets: list[Running], bystanders: Bystanders, to_run: tuple[Load, ...], rounds: int, console: Console
) -> list[Round]:
    requests = {load.name: Requests(load) for load in to_run}
    clients = {target.name: Client(target, bystanders) for target in targets}
    warm = Load("warm-up", SIZES["8k"], 8, 0.3)
    for client in clients.values():
        await client.measure(warm, Requests(warm))
        client.require_recorded()
    done: list[Round] = []
    columns = (TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        bar = progress.add_task("")
        for number in range(rounds):
            measured: dict[str, dict[str, Measured]] = {target.name: {} for target in targets}
            turn = number % len(targets)
            for load, target in itertools.product(to_run, targets[turn:] + targets[:turn]):
                progress.update(bar, description=f"round {number + 1}/{rounds}: {load.name}, {target.name}")
                progress.refresh()
                measured[target.name][load.name] = await clients[target.name].measure(load, requests[load.name])
            done.append(measured)
    for client in clients.values():
        client.require_recorded()
    return done


def growth(targets: list[Target], work: Path, upstream: int, bystanders: Bystanders) -> dict[str, Growth]:
    found = {}
    for target in targets:
        if target.name == "direct":
            continue
        with running(target, work / f"{target.name}-growth", upstream, bystanders.cores) as fresh:
            found[target.name] = uvloop.run(measure_growth(fresh, bystanders))
    return found


def run(options: argparse.Namespace, work: Path, console: Console) -> Results:
    cores = Cores.pick()
    known = all_targets()
    skipped = {target.name: target.missing for target in known if target.missing}
    for name, reason in skipped.items():
        console.print(f"[yellow]skipped {name}: {reason}")
    usable = [target for target in known if not target.missing]
    to_run = loads(0.35 if options.quick else 0.9, ask=options.ask)
    with engine(work, cores) as (canned, upstream), ExitStack() as stack:
        started = [stack.enter_context(running(t, work / t.name, upstream, cores)) for t in usable]
        with cores.load_only():
            children = [canned, *(one.child for one in started if one.child)]
            rounds = uvloop.run(run_rounds(started, Bystanders(cores, children), to_run, options.rounds, console))
            stack.close()
            grown = growth(usable, work, upstream, Bystanders(cores, [canned]))
    return Results(rounds, grown, skipped)


def main() -> int:
    summary, _, description = (__doc__ or "").partition("\n")
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.proxy",
        description=summary,
        epilog=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rounds", type=int, help="interleaved rounds (7, or 2 with --quick)")
    parser.add_argument("--quick", action="store_true", help="shorter loads and fewer rounds: under a minute")
    parser.add_argument("--ask", action="store_true", help="the client asks for token ids and logprobs itself")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure of every round here")
    parser.add_argument("--work", type=Path, metavar="DIR", help="where logs and databases go while it runs")
    parser.add_argument("--check", action="store_true", help="exit 1 when a goal is missed")
    options = parser.parse_args()
    options.rounds = options.rounds or (2 if options.quick else 7)
    console = Console(width=None if sys.stdout.isatty() else 170)
    with tempfile.TemporaryDirectory(prefix="polarproxy-bench-", dir=options.work) as work:
        results: Results | None = None
        try:
            results = run(options, Path(work), console)
        except* (RuntimeError, ConnectionError) as failed:
            console.print(f"[red]failed[/] {failed.exceptions[0]}", markup=True)
    if results is None:
        return 1
    console.print(table(results))
    missed = missed_goals(results)
    for line in missed:
        console.print(f"[red]missed[/] {line}")
    if options.json:
        options.json.write_text(json.dumps(results_json(results), indent=1))
    return 1 if options.check and missed else 0


if __name__ == "__main__":
    sys.exit(main())
