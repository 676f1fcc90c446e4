"""The connection that the writer keeps breaks, or the database behind it is damaged: what was acknowledged is there, once."""

import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import wait
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, event, text

from polarproxy.errors import StoreUnavailable, Unstorable
from polarproxy.store.items import Item
from polarproxy.store.repository import Repository
from polarproxy.store.writer import Writer
from tests.database import ON_SQLITE
from tests.store.samples import a_call, new_call
from tests.store.test_writer import GatedWriter

SECONDS = 20
HEAD = list(range(100))
PAGE = 4096


def turn(number: int) -> Item:
    """Each builds on those before it, with its prompt and with its body."""
    return new_call(a_call(f"c{number}", number, [*HEAD, *range(number)], [7], request_body=b"b" * (500 + number)))


def recorded(repository: Repository) -> list[str]:
    assert list(repository.verify()) == []
    return [captured.call.call_id for captured in repository.calls("s1")]


class Breaking:
    """Ends the next statement that begins with `at` with an error, in its middle."""

    def __init__(self, engine: Engine) -> None:
        self.at: str | None = None
        self.broken = 0
        self._reached = False
        event.listen(engine, "connect", self._watch)

    def _watch(self, connection: Any, _record: Any) -> None:
        connection.set_trace_callback(self._see)
        connection.set_progress_handler(self._end, 1)

    def _see(self, sql: str) -> None:
        if self.at is not None and sql.startswith(self.at):
            self.at, self._reached = None, True

    def _end(self) -> bool:
        reached, self._reached = self._reached, False
        self.broken += reached
        return reached


@ON_SQLITE
@pytest.mark.parametrize("table", ["bodies", "calls", "completions"])
def test_a_kept_connection_that_breaks_costs_its_group_and_no_other(
    engine: Engine, repository: Repository, table: str
) -> None:
    breaking, writer = Breaking(engine), GatedWriter(engine)
    held = writer.hold(turn(0))
    held.add_done_callback(lambda _: setattr(breaking, "at", f"INSERT INTO {table}"))
    group = [writer.submit(turn(number)) for number in (1, 2, 3)]
    writer.gate.set()
    held.result(SECONDS)
    for future in group:
        with pytest.raises(StoreUnavailable, match="could not commit: interrupted"):
            future.result(SECONDS)
    assert (breaking.broken, writer.groups, writer.failed) == (1, [1, 3], 3)
    assert recorded(repository) == ["c0"]
    for number in (2, 1, 3):
        writer.submit(turn(number)).result(SECONDS)
    assert writer.trouble is None
    writer.close()
    assert recorded(repository) == ["c0", "c1", "c2", "c3"]


@ON_SQLITE
def test_a_kept_connection_that_was_closed_is_replaced(engine: Engine, repository: Repository) -> None:
    """Without a word to who waits: no item was at fault, and all of them are stored, once."""
    writer = GatedWriter(engine)
    closed: list[Any] = []

    def close(connection: Connection) -> None:
        if len(writer.groups) == 2 and not closed:
            closed.append(connection.connection.driver_connection)
            closed[0].close()

    event.listen(engine, "begin", close, insert=True)
    held = writer.hold(turn(0))
    group = [writer.submit(turn(number)) for number in (1, 2, 3)]
    writer.gate.set()
    wait([held, *group], SECONDS)
    assert [future.exception() for future in (held, *group)] == [None] * 4
    assert len(closed) == 1
    writer.close()
    assert recorded(repository) == ["c0", "c1", "c2", "c3"]


@contextmanager
def damaged(file: Path, first: int) -> Iterator[None]:
    """All pages from this one on hold something else, until the block ends."""
    with closing(sqlite3.connect(file)) as other:
        other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    whole = file.read_bytes()
    with file.open("r+b") as opened:
        opened.seek(first * PAGE)
        opened.write(b"\xff" * (len(whole) - first * PAGE))
    yield
    with file.open("r+b") as opened:
        opened.write(whole)


@contextmanager
def renamed(engine: Engine) -> Iterator[None]:
    """Somebody took a table away, until the block ends."""
    with engine.begin() as connection:
        connection.execute(text("ALTER TABLE completions RENAME TO aside"))
    yield
    with engine.begin() as connection:
        connection.execute(text("ALTER TABLE aside RENAME TO completions"))


Damage = Callable[[Engine, Path], AbstractContextManager[None]]
DAMAGES: list[Any] = [
    pytest.param("sqlite", lambda _, file: damaged(file, 1), id="pages"),
    pytest.param("sqlite", lambda _, file: damaged(file, 0), id="all pages"),
    pytest.param("sqlite", lambda engine, _: renamed(engine), id="a table of SQLite"),
    pytest.param("postgresql", lambda engine, _: renamed(engine), id="a table of PostgreSQL"),
]


@pytest.mark.parametrize(("url", "damage"), DAMAGES, indirect=["url"])
def test_a_damaged_database_is_not_the_fault_of_what_it_is_given(
    engine: Engine, file: Path, repository: Repository, damage: Damage
) -> None:
    """It says so: nobody is ready, and what is spooled waits instead of being refused for ever."""
    writer = Writer(engine)
    writer.submit(turn(0)).result(SECONDS)
    with damage(engine, file):
        for number in (1, 2):
            with pytest.raises(StoreUnavailable) as refused:
                writer.submit(turn(number)).result(SECONDS)
            assert not isinstance(refused.value, Unstorable)
        assert writer.trouble is not None
    for number in (1, 2):
        writer.submit(turn(number)).result(SECONDS)
    assert writer.trouble is None
    writer.close()
    assert recorded(repository) == ["c0", "c1", "c2"]


@pytest.mark.parametrize(("url", "damage"), DAMAGES, indirect=["url"])
def test_a_group_that_a_damaged_database_refuses_is_not_tried_item_by_item(
    engine: Engine, file: Path, repository: Repository, damage: Damage
) -> None:
    """What is damaged is not written to, and nobody waits for as many failures as there are items."""
    begun: list[Connection] = []
    writer = GatedWriter(engine)
    writer.gate.set()
    writer.submit(turn(0)).result(SECONDS)
    writer.gate.clear()
    group = [writer.submit(turn(number)) for number in range(1, 6)]
    with damage(engine, file):
        event.listen(engine, "begin", begun.append, insert=True)
        writer.gate.set()
        for future in group:
            with pytest.raises(StoreUnavailable, match="the store could not commit"):
                future.result(SECONDS)
        tried = len([one for one in begun if one.get_execution_options().get("writes")])
    # The thread may have taken the first before the others came.
    assert tried <= len(writer.groups) - 1 <= 2
    for number in range(1, 6):
        writer.submit(turn(number)).result(SECONDS)
    writer.close()
    assert recorded(repository) == [f"c{number}" for number in range(6)]
