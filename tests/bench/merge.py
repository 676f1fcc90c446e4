"""What it costs to find which call continues which, next to comparing lists with the tip of every chain.

    python -m tests.bench.merge [--rounds N] [--quick] [--json FILE] [--check]

Three loads: one session of 50 turns that grows to 55,000 tokens; 990 calls of 33 agents in turns, which share a head; 10,000
sessions of 10 turns. The rival has the shape of Polar's grouping: for each prompt, a Python list, it compares a slice with
the last prompt of every chain; making the lists is not counted. Ours makes the whole forest of the calls as the store gives
them. Both must find the same conversations. Processor time, interleaved rounds, medians; what counts are the ratios.

Bandwidth: bytes of all prompts and replies as int32 over the time of the forest. Cost of one more call: that of the last
500 calls over that of the second 500, of a session of 2,000 calls whose conversations are alike. Asked again: branches and
repeats of one prompt that was asked 2,000 times, by call, over those of 500. Drift: finding it
over making the forest, where nothing drifts, where every turn comes back in other tokens, and where three numbers at the
beginning of each prompt change.

Exit status: 0, or with `--check` 1 when a goal is missed.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from polarproxy.trajectory.branches import trajectory_of
from polarproxy.trajectory.drift import find_drifts
from polarproxy.trajectory.forest import Forest, GrowingForest, build_forest
from polarproxy.trajectory.repeats import find_repeats
from tests.bench.goals import Goal, as_json
from tests.bench.merge_work import Session, agents, asked_again, group_by_lists, long, small, with_nonces

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

FORMAT_VERSION = 1
SESSIONS = 10_000
_DIFFERENT = 100
"""Sessions of the third load that are really made; they are gone over until there are as many."""
LONG, AGENTS, SMALL = "50 turns to 55k tokens", "990 calls of 33 agents", "sessions of 10 turns"


_SOME = 500
"""Calls that are added while the time is taken."""


def seconds(work: Callable[[], object]) -> float:
    """Processor time of this thread."""
    start = time.thread_time()
    work()
    return time.thread_time() - start


@dataclass(frozen=True)
class Load:
    """Sessions, gone over `times` times."""

    name: str
    sessions: Sequence[Session]
    times: int = 1

    def ours(self) -> None:
        for _ in range(self.times):
            for session in self.sessions:
                build_forest(session.calls)

    def theirs(self) -> None:
        for _ in range(self.times):
            for session in self.sessions:
                group_by_lists(session.prompts)

    @property
    def size(self) -> int:
        return self.times * sum(session.size for session in self.sessions)


@dataclass(frozen=True)
class Timing:
    """Seconds of one round."""

    ours: float
    theirs: float


@dataclass(frozen=True)
class Results:
    rounds: list[dict[str, Timing]]
    sessions: int
    """Of the third load."""
    sizes: dict[str, int]
    added: list[float]
    """Cost of one more call late in a session over the same early, by round."""
    asked_again: list[float]
    """Cost of a call with the prompt of all others, where there are four times as many, over that where there are fewer."""
    drift_of_none: list[float]
    """Finding drift over making the forest, by round."""
    drift_of_all: list[float]
    drift_of_nonces: list[float]

    def ratio(self, load: str) -> float:
        return statistics.median(one[load].theirs / one[load].ours for one in self.rounds)

    def bandwidth(self, load: str) -> float:
        """Bytes per second."""
        return self.sizes[load] / statistics.median(one[load].ours for one in self.rounds)

    def goals(self) -> Iterator[Goal]:
        yield Goal(f"{LONG}, list comparison over ours", self.ratio(LONG), 8, at_least=True)
        yield Goal(f"{AGENTS}, list comparison over ours", self.ratio(AGENTS), 20, at_least=True)
        slowest = min(self.bandwidth(load) for load in (LONG, AGENTS))
        yield Goal("bandwidth of both over 1 GB/s", slowest / 1e9, 1.5, at_least=True)
        yield Goal("one more call, late over early", statistics.median(self.added), 1.3, at_least=False)
        yield Goal(
            "a prompt asked 2,000 times over 500, by call", statistics.median(self.asked_again), 2, at_least=False
        )


def conversations(forest: Forest) -> list[int]:
    """For each call the root that it comes from."""
    roots: list[int] = []
    for place, node in enumerate(forest.nodes):
        roots.append(place if node.parent is None else roots[node.parent])
    return roots


def assert_alike(sessions: Sequence[Session]) -> None:
    """Both find the same conversations."""
    for session in sessions:
        ours, theirs = conversations(build_forest(session.calls)), group_by_lists(session.prompts)
        if len(set(zip(ours, theirs, strict=True))) != len(set(ours)) or len(set(ours)) != len(set(theirs)):
            raise SystemExit("the two ways do not find the same conversations; nothing to compare")


def added(session: Session) -> float:
    """Late over early: seconds of the last quarter of the calls over those of the second."""
    growing = GrowingForest()

    def add_from(start: int) -> None:
        for call in session.calls[start : start + _SOME]:
            growing.add(call)

    spent = [seconds(partial(add_from, start)) for start in range(0, len(session.calls), _SOME)]
    return spent[-1] / spent[1]


def repeated(few: Session, many: Session) -> float:
    """By call, what many calls of one prompt cost over what few do."""

    def work(session: Session) -> None:
        forest = build_forest(session.calls)
        trajectory_of("s", forest)
        find_repeats(forest)

    return seconds(lambda: work(many)) / len(many.calls) / (seconds(lambda: work(few)) / len(few.calls))


def drift(session: Session) -> float:
    forest = build_forest(session.calls)
    return seconds(lambda: find_drifts(forest, {})) / seconds(lambda: build_forest(session.calls))


def run(rounds: int, times: int) -> Results:
    loads = [Load(LONG, [long()]), Load(AGENTS, [agents()]), Load(SMALL, small(_DIFFERENT), times)]
    alike = agents(count=200, turns=10)
    # One conversation after the other, so that early and late calls have the same prompts but for their tokens.
    ordered = sorted(range(2_000), key=lambda place: (place % 200, place))
    alike = Session([alike.calls[place] for place in ordered], [])
    few, many = asked_again(_SOME), asked_again(4 * _SOME)
    drifting, changing = long(drifting=True), with_nonces()
    for load in loads:
        assert_alike(load.sessions)
    measured: list[dict[str, Timing]] = []
    results = Results(measured, times * _DIFFERENT, {load.name: load.size for load in loads}, [], [], [], [], [])
    for _ in range(rounds):
        measured.append({load.name: Timing(seconds(load.ours), seconds(load.theirs)) for load in loads})
        results.added.append(added(alike))
        results.asked_again.append(repeated(few, many))
        results.drift_of_none.append(drift(loads[0].sessions[0]))
        results.drift_of_all.append(drift(drifting))
        results.drift_of_nonces.append(drift(changing))
    return results


def table(results: Results) -> Table:
    out = Table(title=f"processor time, median of {len(results.rounds)} interleaved rounds")
    for name in ("load", "forest", "list comparison", "ratio", "bandwidth of the forest"):
        out.add_column(name, justify="left" if name == "load" else "right")
    for load in (LONG, AGENTS, SMALL):
        ours, theirs = (
            statistics.median(getattr(one[load], who) for one in results.rounds) * 1e3 for who in ("ours", "theirs")
        )
        rate = results.bandwidth(load) / 1e9
        shown = f"{results.sessions:,} {load}" if load == SMALL else load
        out.add_row(shown, f"{ours:,.1f} ms", f"{theirs:,.0f} ms", f"{results.ratio(load):.0f}x", f"{rate:.1f} GB/s")
    return out


def main() -> int:
    summary, _, description = (__doc__ or "").partition("\n")
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.merge",
        description=summary,
        epilog=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rounds", type=int, help="interleaved rounds (5, or 1 with --quick)")
    parser.add_argument("--quick", action="store_true", help="a tenth of the third load, one round: some seconds")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure of every round here")
    parser.add_argument("--check", action="store_true", help="exit 1 when a goal is missed")
    options = parser.parse_args()
    times = SESSIONS // _DIFFERENT // (10 if options.quick else 1)
    results = run(options.rounds or (1 if options.quick else 5), times)
    console = Console(width=None if sys.stdout.isatty() else 150, highlight=False)
    console.print(table(results))
    none, every, nonces = map(statistics.median, (results.drift_of_none, results.drift_of_all, results.drift_of_nonces))
    console.print(
        f"finding drift over making the forest: {none:.1f}x where nothing drifts, {every:.0f}x where every turn does, "
        f"{nonces:.0f}x with nonces in every prompt"
    )
    goals = list(results.goals())
    for goal in goals:
        console.print(str(goal))
    if options.json:
        options.json.write_text(json.dumps(as_json(FORMAT_VERSION, results, results.goals()), indent=1))
    return 1 if options.check and not all(goal.met for goal in goals) else 0


if __name__ == "__main__":
    sys.exit(main())
