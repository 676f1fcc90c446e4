"""How busy rollouts keep the engine: separate places and prewarming, against one place from beginning to end.

    python -m tests.bench.lifecycle [--rollouts 48] [--calls 20] [--json FILE]

The engine takes 100 ms for a call, the evaluator 2 s, and 8 rollouts run at once; the harness is a small program that asks
again and again. `busy` is the share of the time in which the engine had a call, `full` how many of the 8 it had on
average, both from the first call to the moment when fewer than 8 rollouts were left to begin. The goal is `busy` ≥ 0.9.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from polarproxy.model.harness import Turn
from polarproxy.rollout.scripted.engine import Asked, ScriptedEngine
from polarproxy.rollout.service.ports import Pools
from tests.bench.goals import Goal, as_json
from tests.rollout.service.shop import service

AT_ONCE = 8
CALL_S = 0.1
JUDGED_S = 2.0
VERSION = 1


@dataclass(frozen=True)
class Measured:
    """Shares of the time from 0 to 1, and how long all took."""

    busy: float
    full: float
    seconds: float


@dataclass(frozen=True)
class Results:
    stages: Measured
    one_place: Measured
    """Every rollout keeps its place until it is judged, and its runtime is made in it."""


async def measure(pools: Pools, one_place: int | None, rollouts: int, calls: int) -> Measured:
    """Runs the job and looks at when the engine had calls."""
    began: list[float] = []

    def answer(_: Asked) -> Turn:
        began.append(time.monotonic())
        return Turn(text="Done.")

    program = f"for n in range({calls}): ask(str(n))"
    judge = {"kind": "tests", "command": ["sleep", str(JUDGED_S)], "fresh": False}
    with tempfile.TemporaryDirectory(prefix="polarproxy-bench-") as folder:
        async with (
            ScriptedEngine(answer, delay_s=CALL_S) as engine,
            service(Path(folder), pools=pools, one_place=one_place, upstream=engine.url) as made,
        ):
            started = time.monotonic()
            task = made.submit(program, num_samples=rollouts, evaluator=judge)
            await made.done(task, seconds=600)
            seconds = time.monotonic() - started
    # The last 8 rollouts have nobody to take their place.
    return Measured(*shares(sorted(began)[: (rollouts - AT_ONCE) * calls]), seconds)


def shares(began: list[float]) -> tuple[float, float]:
    """Of calls that each take `CALL_S`: the share of the time with any of them, and their mean number over `AT_ONCE`."""
    first, last = began[0], began[-1]
    covered, until = 0.0, first
    for at in began:
        covered += max(0.0, at + CALL_S - max(at, until))
        until = max(until, at + CALL_S)
    return min(1.0, covered / (last + CALL_S - first)), len(began) * CALL_S / (last + CALL_S - first) / AT_ONCE


async def compare(rollouts: int, calls: int) -> Results:
    """Both ways, one after the other."""
    pools = Pools(init=4, ready=AT_ONCE, run=AT_ONCE, post=2 * AT_ONCE)
    return Results(await measure(pools, None, rollouts, calls), await measure(pools, AT_ONCE, rollouts, calls))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.lifecycle", description=__doc__.partition("\n")[0])
    parser.add_argument("--rollouts", type=int, default=48)
    parser.add_argument("--calls", type=int, default=20)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    results = asyncio.run(compare(asked.rollouts, asked.calls))
    goals = [Goal("engine busy", results.stages.busy, 0.9, at_least=True)]
    console = Console()
    for name, one in (("stages", results.stages), ("one place", results.one_place)):
        console.print(
            f"{name:>10}: busy {one.busy:.1%}, {one.full:.1%} of {AT_ONCE} calls at once, {one.seconds:.0f} s"
        )
    for goal in goals:
        console.print(str(goal))
    if asked.json is not None:
        asked.json.write_text(json.dumps(as_json(VERSION, results, goals), indent=1))
    return 0 if all(goal.met for goal in goals) else 1


if __name__ == "__main__":
    sys.exit(main())
