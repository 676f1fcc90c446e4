"""A writer in trouble finds out by itself that it is over, and what it tries leaves nothing behind."""

import asyncio
import sqlite3
from pathlib import Path

import pytest
from sqlalchemy import Engine, func, select
from sqlalchemy.exc import DBAPIError

from polarproxy.errors import StoreUnavailable
from polarproxy.store.database import for_writing
from polarproxy.store.recording import Recording
from polarproxy.store.schema import metadata
from polarproxy.store.trial import Trial
from polarproxy.store.writer import Writer
from tests.database import ON_SQLITE
from tests.store.samples import a_call, new_call

SECONDS = 20


def rows(engine: Engine) -> int:
    """Of all tables."""
    with engine.begin() as connection:
        return sum(connection.execute(select(func.count()).select_from(table)).scalar_one() for table in _TABLES)


_TABLES = tuple(metadata.tables.values())


def test_it_leaves_nothing_behind(engine: Engine) -> None:
    before = rows(engine)
    recording = Recording(for_writing(engine))
    recording.write([Trial()])
    recording.write([Trial(), new_call(a_call("c0", 0)), Trial()])
    recording.close()
    with engine.begin() as connection:
        assert connection.execute(select(func.count()).select_from(metadata.tables["blobs"])).scalar_one() == 0
    assert rows(engine) > before


@pytest.mark.parametrize("table", ["sessions", "bodies", "blobs", "calls", "completions", "token_texts", "call_facts"])
def test_it_needs_all_that_a_call_needs(engine: Engine, table: str) -> None:
    with for_writing(engine).begin() as connection:
        connection.exec_driver_sql(f"ALTER TABLE {table} RENAME TO elsewhere")
    recording = Recording(for_writing(engine))
    with pytest.raises(DBAPIError):
        recording.write([Trial()])
    recording.close()
    with for_writing(engine).begin() as connection:
        connection.exec_driver_sql(f"ALTER TABLE elsewhere RENAME TO {table}")


@ON_SQLITE
async def test_trouble_stays_until_something_is_committed(engine: Engine, file: Path) -> None:
    writer = Writer(engine)
    await writer.write(new_call(a_call("c0", 0)), SECONDS)
    assert await writer.look(SECONDS) is None
    other = sqlite3.connect(file, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreUnavailable, match="did not commit within"):
        await writer.write(new_call(a_call("c1", 1)), 0.05)
    said = await asyncio.gather(*(writer.look(0.05) for _ in range(3)))
    assert said == [said[0]] * 3
    assert "did not commit within" in str(said[0])
    assert writer.waiting == 1
    other.execute("ROLLBACK")
    other.close()
    assert await writer.look(SECONDS) is None
    assert writer.failed == 0
    writer.close()
