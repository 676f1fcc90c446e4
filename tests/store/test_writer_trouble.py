"""A SQLite file in trouble (locked, not writable, full) fails the calls it was given, and the next ones go through."""

import random
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, event

from polarproxy.errors import StoreUnavailable
from polarproxy.store.repository import Repository
from polarproxy.store.writer import Writer
from tests.database import ON_SQLITE
from tests.store.samples import a_call, new_call

pytestmark = ON_SQLITE

SECONDS = 20
Trouble = Callable[[Engine, Path], AbstractContextManager[None]]


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waiting for a lock ends soon; set before the engine is opened."""
    monkeypatch.setattr("polarproxy.store.database.BUSY_TIMEOUT_MS", 20)


@pytest.fixture
def engine(soon: None, engine: Engine) -> Engine:
    return engine


@contextmanager
def locked(_: Engine, file: Path) -> Iterator[None]:
    """Another process writes, and does not end."""
    other = sqlite3.connect(file, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    yield
    other.execute("ROLLBACK")
    other.close()


@contextmanager
def pragmas(engine: Engine, bad: str, good: str) -> Iterator[None]:
    """Every transaction is under a pragma, until the trouble is over: also one of a connection that was there before."""
    statement = bad

    def on_begin(connection: Connection) -> None:
        connection.exec_driver_sql(f"PRAGMA {statement}")

    def on_checkout(connection: Any, *_: object) -> None:
        connection.execute(f"PRAGMA {statement}")

    event.listen(engine, "checkout", on_checkout)
    event.listen(engine, "begin", on_begin)
    yield
    statement = good


def read_only(engine: Engine, _: Path) -> AbstractContextManager[None]:
    return pragmas(engine, "query_only=1", "query_only=0")


def full(engine: Engine, _: Path) -> AbstractContextManager[None]:
    # A limit below the present size counts as the present size: not one page more.
    return pragmas(engine, "max_page_count=1", "max_page_count=1000000")


TROUBLES = pytest.mark.parametrize("trouble", [locked, read_only, full], ids=["locked", "read-only", "full"])


def large(number: int) -> bytes:
    """A body that no compression makes small, so that it needs pages of its own."""
    return random.Random(number).randbytes(50_000)


@TROUBLES
def test_it_fails_what_waits_and_then_goes_on(
    engine: Engine, file: Path, repository: Repository, trouble: Trouble
) -> None:
    writer = Writer(engine)
    writer.submit(new_call(a_call("c0", 0))).result(SECONDS)
    with trouble(engine, file):
        futures = [writer.submit(new_call(a_call(f"c{n}", n, request_body=large(n)))) for n in (1, 2)]
        for future in futures:
            with pytest.raises(StoreUnavailable, match="could not commit"):
                future.result(SECONDS)
        assert writer.trouble is not None
        assert [captured.call.call_id for captured in repository.calls("s1")] == ["c0"]
    writer.submit(new_call(a_call("c1", 1, request_body=large(1)))).result(SECONDS)
    assert writer.trouble is None
    writer.close()
    assert [captured.call.call_id for captured in repository.calls("s1")] == ["c0", "c1"]
    assert list(repository.verify()) == []


@TROUBLES
async def test_who_waits_for_it_is_told(engine: Engine, file: Path, trouble: Trouble) -> None:
    writer = Writer(engine)
    with trouble(engine, file), pytest.raises(StoreUnavailable, match="could not commit"):
        await writer.write(new_call(a_call(request_body=large(0))), SECONDS)
    writer.close()


def test_a_failed_call_can_be_stored_again_with_its_base(engine: Engine, file: Path, repository: Repository) -> None:
    """What was not committed is no base for what comes later."""
    head, writer = list(range(100)), Writer(engine)
    with locked(engine, file), pytest.raises(StoreUnavailable):
        writer.submit(new_call(a_call("c0", 0, head, [1]))).result(SECONDS)
    writer.submit(new_call(a_call("c1", 1, [*head, 1, 2], [3]))).result(SECONDS)
    writer.close()
    assert list(repository.call("c1").call.prompt_token_ids or ()) == [*head, 1, 2]


@pytest.mark.parametrize("another", [False, True], ids=["gone", "replaced"])
def test_a_file_that_has_lost_its_name_is_not_written_to(
    engine: Engine, file: Path, repository: Repository, *, another: bool
) -> None:
    """Nobody would find what is in it once the process ends."""
    writer = Writer(engine)
    writer.submit(new_call(a_call("c0", 0))).result(SECONDS)
    aside = file.rename(file.with_suffix(".aside"))
    if another:
        file.touch()
    for _ in range(2):
        with pytest.raises(StoreUnavailable, match="put that back, or start polarproxy again"):
            writer.submit(new_call(a_call("c1", 1))).result(SECONDS)
    assert writer.trouble is not None
    assert not file.exists() or file.stat().st_size == 0
    aside.rename(file)
    writer.submit(new_call(a_call("c2", 2))).result(SECONDS)
    writer.close()
    assert [captured.call.call_id for captured in repository.calls("s1")] == ["c0", "c2"]
    assert list(repository.verify()) == []
