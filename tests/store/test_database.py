"""What "committed" means, and which databases are opened at all."""

import sqlite3
import sys
from pathlib import Path

import pytest
from sqlalchemy import Engine

from polarproxy.errors import WrongDatabase
from polarproxy.store.database import for_writing, open_database, parse_url, sqlite_file
from tests.database import ON_SQLITE


def pragma(engine: Engine, name: str) -> object:
    with engine.connect() as connection:
        return connection.exec_driver_sql(f"PRAGMA {name}").scalar_one()


@ON_SQLITE
def test_every_connection_flushes_to_the_disk_before_it_says_committed(engine: Engine) -> None:
    full = 2
    with engine.connect() as first, for_writing(engine).connect() as second:
        for connection in (first, second):
            assert connection.exec_driver_sql("PRAGMA journal_mode").scalar_one() == "wal"
            assert connection.exec_driver_sql("PRAGMA synchronous").scalar_one() == full
            connection.rollback()


@ON_SQLITE
def test_references_are_enforced(engine: Engine) -> None:
    assert pragma(engine, "foreign_keys") == 1


@ON_SQLITE
def test_the_file_stays_in_wal_mode_for_whoever_opens_it(engine: Engine, file: Path) -> None:
    engine.dispose()
    with sqlite3.connect(file) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    connection.close()


@ON_SQLITE
def test_a_writing_transaction_has_its_lock_from_the_start(engine: Engine, file: Path) -> None:
    other = sqlite3.connect(file, timeout=0)
    with for_writing(engine).begin(), pytest.raises(sqlite3.OperationalError, match="locked"):
        other.execute("BEGIN IMMEDIATE")
    other.close()


@ON_SQLITE
def test_a_reading_transaction_does_not_lock_writers_out(engine: Engine, file: Path) -> None:
    other = sqlite3.connect(file, timeout=0)
    with engine.begin() as connection:
        connection.exec_driver_sql("SELECT count(*) FROM calls").scalar_one()
        other.execute("BEGIN IMMEDIATE")
        other.rollback()
    other.close()


@pytest.mark.parametrize("file", ["file.db", "/a/file.db"])
def test_a_file_is_answered_with_its_url(file: str) -> None:
    with pytest.raises(WrongDatabase, match=f"did you mean sqlite:///{file}"):
        parse_url(file)


@pytest.mark.parametrize("url", ["mysql://localhost/polar", "sqlite+aiosqlite:///polar.db", "oracle://x", ""])
def test_a_url_that_cannot_be_used_is_answered_with_those_that_can(url: str) -> None:
    with pytest.raises(WrongDatabase, match="sqlite:///FILE"):
        parse_url(url)


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///:memory:", "sqlite:///"])
def test_a_database_in_memory_is_refused(url: str) -> None:
    with pytest.raises(WrongDatabase, match="lose every call"):
        parse_url(url)


def test_a_missing_file_is_not_made_by_a_reader(tmp_path: Path) -> None:
    with pytest.raises(WrongDatabase, match="no database"):
        open_database(f"sqlite:///{tmp_path}/none.db")
    assert list(tmp_path.iterdir()) == []


def test_a_missing_folder_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(WrongDatabase, match="no such folder"):
        open_database(f"sqlite:///{tmp_path}/none/polar.db", create=True)


def test_postgresql_is_spoken_through_psycopg() -> None:
    assert parse_url("postgresql://user@host/name").drivername == "postgresql+psycopg"
    assert sqlite_file("postgresql://user@host/name") is None


def test_a_missing_driver_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(WrongDatabase, match=r"polarproxy\[postgres\]"):
        open_database("postgresql://user@localhost/name")
