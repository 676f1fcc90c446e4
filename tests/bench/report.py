"""From rounds of measurements to a table of ratios, a verdict per goal, and JSON."""

from __future__ import annotations

import os
import platform
import statistics
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from rich.table import Table

from tests.bench.load import Measured

if TYPE_CHECKING:
    from tests.bench.memory import Growth

FORMAT_VERSION = 1
BASE = "nginx"
_FLOOR = "direct"

Round = Mapping[str, Mapping[str, Measured]]  # target -> load -> measured


@dataclass(frozen=True)
class Row:
    """One line of the table: a figure of one load. `added` figures are taken over the bare engine's in that round."""

    load: str
    label: str
    unit: str
    value: Callable[[Measured], float | None]
    added: bool = False
    # polarproxy's goal as a multiple of nginx's figure; None where there is none.
    goal: float | None = None

    def samples(self, rounds: list[Round], target: str) -> list[float]:
        """The figure per round; empty when the target or the figure was not measured."""
        found = []
        for one in rounds:
            if target not in one:
                return []
            value = self.value(one[target][self.load])
            floor = self.value(one[_FLOOR][self.load]) if self.added else 0.0
            if value is None or floor is None:
                return []
            found.append(value - floor)
        return found

    def ratio(self, rounds: list[Round], target: str) -> float | None:
        """This target's figure over nginx's; None without both.

        The median of the rounds' own ratios, which takes out what a whole round suffered from. An added figure is a
        difference, which can be nothing at all in a round of noise; such a round says nothing.
        """
        pairs = zip(self.samples(rounds, target), self.samples(rounds, BASE), strict=False)
        ratios = [ours / base for ours, base in pairs if base > 0]
        return statistics.median(ratios) if ratios else None


ROWS = (
    Row("tiny c=1", "CPU per request", "µs", lambda m: m.cpu_us),
    Row("tiny c=1", "added latency p50", "µs", lambda m: m.latency_us, added=True),
    Row("8k c=1", "CPU per request", "µs", lambda m: m.cpu_us),
    Row("8k c=1", "added latency p50", "µs", lambda m: m.latency_us, added=True),
    Row("8k c=32", "CPU per request", "µs", lambda m: m.cpu_us, goal=15.0),
    Row("8k c=32", "requests per second", "/s", lambda m: m.rate),
    Row("100k c=1", "CPU per request", "µs", lambda m: m.cpu_us),
    Row("100k c=1", "added latency p50", "µs", lambda m: m.latency_us, added=True),
    Row("stream 66 ev, 5 ms, c=1", "added event latency p50", "µs", lambda m: m.event_us, added=True, goal=2.5),
    Row("stream 66 ev, 20 ms, c=32", "CPU per stream", "µs", lambda m: m.cpu_us),
    # Not over the bare engine's: with client and engine on one core its events wait for the client's turn, which a
    # relay on another core overlaps with, so that the difference to it comes near zero.
    Row("stream 66 ev, 20 ms, c=32", "event latency p50", "µs", lambda m: m.event_us, goal=2.5),
    Row("stream 66 ev, 20 ms, c=32", "added time to first token p50", "µs", lambda m: m.first_token_us, added=True),
    Row("stream 514 ev, unpaced, c=8", "CPU per stream", "µs", lambda m: m.cpu_us),
    Row("stream 514 ev, unpaced, c=8", "events per second", "/s", lambda m: m.events_per_second),
)
# Growth per open stream as a multiple of the stream's own bytes.
GROWTH_GOAL = 3.0


@dataclass(frozen=True)
class Results:
    """`growth` by target; without the bare engine. `skipped` says why a target was not run."""

    rounds: list[Round]
    growth: dict[str, Growth]
    skipped: dict[str, str]

    @property
    def targets(self) -> list[str]:
        return list(self.rounds[0])


def missed_goals(results: Results) -> list[str]:
    """One line per goal that polarproxy missed; empty when it was not run."""
    missed = []
    for row in ROWS:
        ratio = row.ratio(results.rounds, "polarproxy")
        if row.goal is not None and ratio is not None and ratio > row.goal:
            missed.append(f"{row.load}, {row.label}: {ratio:.1f}x nginx, goal {row.goal}x")
    ours = results.growth.get("polarproxy")
    if ours and ours.per_stream > GROWTH_GOAL * ours.stream_bytes:
        missed.append(f"growth per open stream: {ours.per_stream / ours.stream_bytes:.1f}x its bytes, goal 3x")
    return missed


def table(results: Results) -> Table:
    """Medians of the rounds, each with its ratio to nginx."""
    noise = max(m.noise for one in results.rounds for loads in one.values() for m in loads.values())
    caption = (
        f"other processes had at most {noise:.0%} of the two cores during a measurement;"
        f" Python {platform.python_version()}, {platform.python_compiler()}"
    )
    out = Table(title=f"median of {len(results.rounds)} interleaved rounds; (x) is the ratio to nginx", caption=caption)
    out.add_column("load")
    out.add_column("figure")
    for name in results.targets:
        out.add_column(name, justify="right")
    out.add_column("goal for polarproxy", justify="right")
    before = ""
    for row in ROWS:
        cells = [_cell(row, results, name) for name in results.targets]
        out.add_row("" if row.load == before else row.load, row.label, *cells, _goal(row, results))
        before = row.load
    growth = [_growth_cell(results.growth.get(name)) for name in results.targets]
    out.add_row("200 open streams", "RSS growth per stream", *growth, "≤ 3x its bytes")
    return out


def _cell(row: Row, results: Results, name: str) -> str:
    samples = row.samples(results.rounds, name)
    if not samples:
        return "-"
    if row.added and name == _FLOOR:
        alone = statistics.median(row.value(one[name][row.load]) or 0.0 for one in results.rounds)
        return f"[dim]{alone:,.0f} {row.unit} in all[/]"
    text = f"{statistics.median(samples):,.0f} {row.unit}"
    ratio = row.ratio(results.rounds, name)
    return text if ratio is None or name in (BASE, _FLOOR) else f"{text} ({ratio:.2f}x)"


def _goal(row: Row, results: Results) -> str:
    if row.goal is None:
        return ""
    ratio = row.ratio(results.rounds, "polarproxy")
    verdict = "" if ratio is None else " [green]met[/]" if ratio <= row.goal else " [red]missed[/]"
    return f"≤ {row.goal:g}x{verdict}"


def _growth_cell(growth: Growth | None) -> str:
    if growth is None:
        return "-"
    return f"{growth.per_stream / 1024:.0f} KiB ({growth.per_stream / growth.stream_bytes:.2f}x bytes)"


def as_json(results: Results) -> dict[str, object]:
    figures = [
        {
            "load": row.load,
            "figure": row.label,
            "unit": row.unit,
            "goal": row.goal,
            "median": {n: statistics.median(s) for n in results.targets if (s := row.samples(results.rounds, n))},
            "ratio_to_nginx": {n: row.ratio(results.rounds, n) for n in results.targets},
        }
        for row in ROWS
    ]
    return {
        "format_version": FORMAT_VERSION,
        "machine": {"system": platform.platform(), "python": platform.python_version(), "cpus": os.cpu_count()},
        "figures": figures,
        "growth": {name: asdict(growth) | {"per_stream": growth.per_stream} for name, growth in results.growth.items()},
        "missed_goals": missed_goals(results),
        "skipped": results.skipped,
        "rounds": [
            {name: {load: asdict(m) for load, m in by_load.items()} for name, by_load in one.items()}
            for one in results.rounds
        ],
    }
