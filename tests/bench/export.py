"""What writing rows costs, next to a writer of JSON lines with the standard library; and the memory of a large export.

    python -m tests.bench.export [--rounds N] [--tokens N] [--work DIR] [--json FILE] [--check]

The same rows (agents' sessions of 20 turns and 7,300 tokens, two in five of them sampled; ids by Zipf's law,
log-probabilities of a model's kind) are written by each canonical format and by `json.dumps` of the same columns: processor
time per token and bytes per token. Rounds are interleaved, figures are medians, and what counts are the ratios of one run on
one machine.

Memory: `polarproxy export --format parquet` of a store of so many tokens (10 million), as a process of its own, next to that
of a tenth of it, by peak resident size.

Exit status: 0, or with `--check` 1 when a goal is missed.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from rich.console import Console
from rich.table import Table

from polarproxy.export.columns import ARRAYS, VALUES
from polarproxy.export.files import format_named
from polarproxy.export.format import rows_of
from tests.batch.rows import row
from tests.bench import scale
from tests.bench.goals import Goal, as_json
from tests.database import fresh
from tests.export.exported import context, taken

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from polarproxy.batch.sample import Sample
    from polarproxy.export.format import Context, Taken

FORMAT_VERSION = 1
ROWS = 256
GROUP = 8
TURNS, PROMPT, SAMPLED = 20, 220, 145
"""Of a row: so many turns, of so many tokens that were asked or came back, and so many that were sampled."""
VOCABULARY = 151_936
RIVAL = "json.dumps"
FORMATS = ("parquet", "jsonl", "arrow")
MOST_MEMORY = 1.2


@dataclass(frozen=True)
class Written:
    """One format in one round."""

    cpu_ns: float
    """Of a token."""
    bytes: float
    """Of a token."""


@dataclass(frozen=True)
class Memory:
    """A large export, and one of a tenth."""

    tokens: int
    peak_mib: float
    tenth_mib: float
    seconds: float

    @property
    def ratio(self) -> float:
        return self.peak_mib / self.tenth_mib


@dataclass(frozen=True)
class Results:
    rounds: list[dict[str, Written]]
    memory: Memory

    def of(self, name: str) -> Written:
        own = [one[name] for one in self.rounds]
        return Written(statistics.median(one.cpu_ns for one in own), own[0].bytes)

    def faster(self, name: str) -> float:
        """The median of the rounds' own ratios."""
        return statistics.median(one[RIVAL].cpu_ns / one[name].cpu_ns for one in self.rounds)

    def smaller(self, name: str) -> float:
        return self.of(RIVAL).bytes / self.of(name).bytes

    def goals(self) -> Iterator[Goal]:
        yield Goal("Parquet over json.dumps, tokens/s", self.faster("parquet"), 12, at_least=True)
        yield Goal("json.dumps over Parquet, bytes", self.smaller("parquet"), 5, at_least=True)
        yield Goal("peak memory of 10x the tokens", self.memory.ratio, MOST_MEMORY, at_least=False)


def samples(count: int) -> list[Sample]:
    """Sessions of an agent: what was asked and came back is context, what was sampled is trained by GRPO over groups."""
    random = np.random.default_rng(7)
    mask = np.tile(np.repeat([0, 1], [PROMPT, SAMPLED]), TURNS).astype(np.uint8)
    turns = np.where(mask == 1, np.arange(len(mask)) // (PROMPT + SAMPLED), -1).astype(np.int32)
    rewards = random.random((count // GROUP, GROUP))
    credit = (rewards - rewards.mean(1, keepdims=True)) / (rewards.std(1, ddof=1, keepdims=True) + 1e-6)
    made = []
    for number, advantage in enumerate(credit.ravel().tolist()):
        ids = np.minimum(random.zipf(1.2, len(mask)), VOCABULARY - 1).astype(np.int32)
        logprobs = -random.exponential(0.4, len(mask)).astype(np.float32)
        own = row(ids.tolist(), mask.tolist(), credit=advantage, session_id=f"s{number:06d}")
        logprobs = np.where(mask == 1, logprobs, np.float32("nan"))
        made.append(replace(own, rollout_logprobs=logprobs, turn_index=turns))
    return made


def write_json(path: Path, sessions: Iterable[Taken], _context: Context) -> None:
    """What one would write without thinking about it; NaN is written as Python writes it."""
    with path.open("w") as file:
        for sample in rows_of(sessions):
            arrays = {name: getattr(sample, name).tolist() for name, _ in ARRAYS}
            file.write(json.dumps(arrays | {name: read(sample) for name, _, read in VALUES}) + "\n")


def measure(write: Callable[[Path, Iterable[Taken], Context], None], rows: list[Sample], path: Path) -> Written:
    sessions, tokens = list(taken(rows)), sum(len(sample.token_ids) for sample in rows)
    # What the writer before left is not this one's work.
    gc.collect()
    started = time.process_time_ns()
    write(path, sessions, context())
    return Written((time.process_time_ns() - started) / tokens, path.stat().st_size / tokens)


def run_rounds(count: int, work: Path) -> list[dict[str, Written]]:
    rows = samples(ROWS)
    writers = {RIVAL: write_json} | {name: format_named(name).write for name in FORMATS}
    for name, write in writers.items():
        measure(write, rows[:8], work / name)
    rounds = []
    for number in range(count):
        names = list(writers)[number % len(writers) :] + list(writers)[: number % len(writers)]
        rounds.append({name: measure(writers[name], rows, work / name) for name in names})
    return rounds


def measure_memory(tokens: int, work: Path) -> Memory:
    size = scale.shape(TURNS)
    each = size.first_prompt_tokens + size.turns * (size.completion_tokens + size.interstitial_tokens)
    peaks, told = [], 0
    started = time.monotonic()
    for part in (tokens // 10, tokens):
        url, out = fresh(work / f"{part}.db"), work / f"{part}.parquet"
        scale.load(url, max(scale.AT_ONCE, part // each), size)
        started = time.monotonic()
        peaks.append(scale.run("-m", "polarproxy", "export", "--db", url, "--out", str(out)).peak_mib)
        told = json.loads(out.with_name(f"{out.name}.report.json").read_bytes())["tokens"]
    return Memory(told, peaks[1], peaks[0], time.monotonic() - started)


def table(results: Results) -> Table:
    out = Table(title=f"writing rows, median of {len(results.rounds)} interleaved rounds")
    for name in ("format", "million tokens a second of CPU", "over json.dumps", "bytes a token", "json.dumps over it"):
        out.add_column(name, justify="left" if name == "format" else "right")
    for name in (RIVAL, *FORMATS):
        one = results.of(name)
        cells = (
            f"{1e3 / one.cpu_ns:.2f}",
            f"{results.faster(name):.1f}x",
            f"{one.bytes:.2f}",
            f"{results.smaller(name):.2f}x",
        )
        out.add_row(name, *cells)
    return out


def main() -> int:
    summary, _, description = (__doc__ or "").partition("\n")
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.export",
        description=summary,
        epilog=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rounds", type=int, default=7, help="interleaved rounds (7)")
    parser.add_argument("--tokens", type=int, default=10_000_000, help="of the large export (10,000,000)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure of every round here")
    parser.add_argument("--work", type=Path, metavar="DIR", help="where files and databases go while it runs")
    parser.add_argument("--check", action="store_true", help="exit 1 when a goal is missed")
    options = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else 150, highlight=False)
    with tempfile.TemporaryDirectory(prefix="polarproxy-bench-", dir=options.work) as work:
        rounds = run_rounds(options.rounds, Path(work))
        results = Results(rounds, measure_memory(options.tokens, Path(work)))
    console.print(table(results))
    told = results.memory
    console.print(
        f"exporting {told.tokens:,} tokens from a store: {told.seconds:.0f} s, peak {told.peak_mib:.0f} MiB; a tenth of them:"
        f" {told.tenth_mib:.0f} MiB"
    )
    goals = list(results.goals())
    for goal in goals:
        console.print(str(goal))
    if options.json:
        options.json.write_text(json.dumps(as_json(FORMAT_VERSION, results, goals), indent=1))
    return 1 if options.check and not all(goal.met for goal in goals) else 0


if __name__ == "__main__":
    sys.exit(main())
