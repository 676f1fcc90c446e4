"""The measurements of `tests.bench.store`, each a handful of numbers of one run on one machine."""

from __future__ import annotations

import asyncio
import itertools
import statistics
import time
from contextlib import closing
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING

import msgspec

from polarproxy.store import codec, rows
from polarproxy.store.database import for_writing, open_database
from polarproxy.store.inserts import Inserts
from polarproxy.store.schema import UTCDateTime, calls, completions, sessions
from polarproxy.store.stats import read_stats
from polarproxy.store.writer import Writer
from tests.bench.store_rivals import as_object
from tests.bench.store_work import LOAD, LONG, MANY, session_calls

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path
    from typing import Any

    from sqlalchemy import Table

    from polarproxy.store.items import NewCall

    _Group = list[tuple[Table, list[rows.Row]]]

    from tests.bench.store_rivals import Store

GROUP = 32
_BAND = 10
_FEW = 12


@dataclass(frozen=True)
class Acks:
    """What one store did for some producers."""

    per_second: float
    cpu_us: float
    """Processor time of this process for each call."""


async def acks(
    store: Store, numbers: Iterator[int], concurrency: int, seconds: float, *, requests: bool = True
) -> Acks:
    """Every producer waits for its call to be durable before it sends the next one of its session.

    A session for each producer is made, then stored, then the next: what it takes to make them is no store's work, and
    is not measured.
    """
    counted, cpu, elapsed = 0, 0.0, 0.0

    async def produce(items: Sequence[NewCall]) -> None:
        for item in items:
            await store.write(item)

    while elapsed < seconds:
        made = [list(session_calls(LOAD, next(numbers), requests=requests)) for _ in range(concurrency)]
        cpu_before, started = time.process_time(), time.monotonic()
        async with asyncio.TaskGroup() as group:
            for items in made:
                group.create_task(produce(items))
        elapsed += time.monotonic() - started
        cpu += time.process_time() - cpu_before
        counted += sum(map(len, made))
    return Acks(counted / elapsed, cpu / counted * 1e6)


@dataclass(frozen=True)
class Size:
    """A session of 50 turns that grows to 55,000 tokens, in bytes for each position that was sent or sampled."""

    positions: int
    json_ids: float
    ids: float
    json_all: float
    """Ids, logprobs and the request."""
    everything: float
    """The growth of the database file."""

    @property
    def ratio(self) -> float:
        """JSON over ours, ids alone."""
        return self.json_ids / self.ids


def size(url: str) -> Size:
    """Stores the session, and weighs it."""
    engine = open_database(url)
    empty = read_stats(engine).database_bytes
    with closing(Writer(engine)) as writer:
        items = list(session_calls(LONG, 1))
        for item in items:
            writer.submit(item).result(60)
    # What lies in the log is written into the file.
    with engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
    found = read_stats(engine)
    engine.dispose()
    ids = sum(
        len(msgspec.json.encode([*(item.call.prompt_token_ids or ()), *item.call.completions[0].token_ids]))
        for item in items
    )
    lines = sum(len(msgspec.json.encode(as_object(item.call))) for item in items)
    count = found.positions
    return Size(count, ids / count, found.token_bytes / count, lines / count, (found.database_bytes - empty) / count)


@dataclass(frozen=True)
class Driver:
    """Processor time of inserting groups of calls, for each call in µs."""

    core_us: float
    bare_us: float

    @property
    def ratio(self) -> float:
        """Ours over the bare driver."""
        return self.core_us / self.bare_us


def driver(url: str, bare_url: str, groups: int) -> Driver:
    """The same rows into two databases: by the inserts that SQLAlchemy compiled, and by `sqlite3` itself."""
    engine, bare = for_writing(open_database(url)), open_database(bare_url)
    run = Inserts(engine.dialect).run
    # Kept, as the writer keeps it.
    ours = engine.connect()
    raw = bare.raw_connection()
    cursor = raw.cursor()
    spent: dict[str, list[float]] = {"core": [], "bare": []}

    def by_core(made: _Group) -> None:
        with ours.begin():
            for table, table_rows in made:
                run(ours, table, table_rows)

    def by_driver(made: _Group) -> None:
        cursor.execute("BEGIN IMMEDIATE")
        for table, table_rows in made:
            cursor.executemany(_sql(table, table_rows), _tuples(table, table_rows))
        cursor.execute("COMMIT")

    for number in range(groups):
        made = _rows(number)
        for name in ("core", "bare") if number % 2 else ("bare", "core"):
            started = time.thread_time()
            by_core(made) if name == "core" else by_driver(made)
            spent[name].append((time.thread_time() - started) / GROUP * 1e6)
    raw.close()
    ours.close()
    engine.dispose()
    bare.dispose()
    # The first groups compile statements.
    return Driver(statistics.median(spent["core"][2:]), statistics.median(spent["bare"][2:]))


def _rows(number: int) -> _Group:
    """A group of calls as the writer inserts them: the ninth turn of as many sessions, without its history."""
    chosen = range(number * GROUP, (number + 1) * GROUP)
    made = [next(itertools.islice(session_calls(LOAD, session), 8, None)) for session in chosen]
    call_rows = [rows.call_row(item.call, None, None) for item in made]
    completion_rows = [row for item in made for row in rows.completion_rows(item.call)]
    for row in call_rows:
        row["prompt_suffix"] = codec.encode_ids(row["prompt_suffix"][: 4 * LOAD.interstitial_tokens])
    for row in completion_rows:
        row["token_ids"] = codec.encode_ids(row["token_ids"])
    session_rows = [rows.session_row(item.session) for item in made]
    return [(sessions, session_rows), (calls, call_rows), (completions, completion_rows)]


def _given(made: list[rows.Row]) -> list[str]:
    """The columns that hold anything; the rows are alike."""
    return [name for name, value in made[0].items() if value is not None]


def _sql(table: Table, made: list[rows.Row]) -> str:
    names = _given(made)
    return f"INSERT INTO {table.name} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})"


def _tuples(table: Table, made: list[rows.Row]) -> list[list[Any]]:
    """What a program without SQLAlchemy would have to do as well: pick the values, spell the times."""
    names = _given(made)
    pick = itemgetter(*names)
    times = [place for place, name in enumerate(names) if isinstance(table.c[name].type, UTCDateTime)]
    values = [list(pick(row)) for row in made]
    for one in values:
        for place in times:
            one[place] = one[place].replace(tzinfo=None).isoformat(" ", "microseconds")
    return values


@dataclass(frozen=True)
class Turns:
    """Processor time of storing a call of one session, in µs: early, and when its history is long."""

    early_us: float
    """The median of turns 2 to 11."""
    late_us: float
    """The median of turns 191 to 200."""

    @property
    def ratio(self) -> float:
        """Late over early."""
        return self.late_us / self.early_us


def turns(folder: Path, fresh: Any) -> Turns:
    """Sessions of 200 turns, one call at a time; the whole process is measured, whichever thread does the work."""
    engine = open_database(fresh(folder / "turns.db"))
    early: list[float] = []
    late: list[float] = []
    with closing(Writer(engine)) as writer:
        for number in range(_FEW):
            for item in session_calls(MANY, number):
                started = time.process_time()
                writer.submit(item).result(60)
                spent = (time.process_time() - started) * 1e6
                if 1 <= item.call.ordinal <= _BAND:
                    early.append(spent)
                elif item.call.ordinal >= MANY.turns - _BAND:
                    late.append(spent)
    engine.dispose()
    return Turns(statistics.median(early), statistics.median(late))
