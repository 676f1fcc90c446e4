"""Whatever any column of any table holds: it is told in words, verify goes through the rest, and new calls are stored.

SQLite takes any value in any column, so that a damaged file or a careless hand can leave it there.
"""

import sqlite3
from contextlib import closing, suppress
from itertools import cycle, islice, zip_longest
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import Column, Engine
from sqlalchemy.exc import DBAPIError

from polarproxy.errors import PolarproxyError, StoreDamaged, WrongDatabase
from polarproxy.store.archiving import write_sessions
from polarproxy.store.copying import copy_shared
from polarproxy.store.database import open_database
from polarproxy.store.repository import Repository
from polarproxy.store.revisions import current
from polarproxy.store.schema import calls, completions, metadata, sessions, token_texts
from polarproxy.store.verifying import Damage
from polarproxy.store.writer import Writer
from tests.database import ON_SQLITE, fresh
from tests.store.filled import SESSIONS, fill
from tests.store.samples import a_call, new_call

if TYPE_CHECKING:
    from collections.abc import Callable

JUNK = (b"junk", "junk", -1, 1.5)
NO_TEXT = "CAST(x'61ff' AS TEXT)"
SECONDS = 30
pytestmark = ON_SQLITE


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A file with a row of nearly everything."""
    file = tmp_path_factory.mktemp("filled") / "polar.db"
    engine = open_database(fresh(file))
    fill(engine)
    engine.dispose()
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return file.read_bytes()


def change(file: Path, whole: bytes, statement: str, value: object = None) -> int:
    """Makes the file what it was, and then edits it."""
    for end in ("", "-wal", "-shm"):
        file.with_name(file.name + end).unlink(missing_ok=True)
    file.write_bytes(whole)
    return edit(file, statement, value)


def edit(file: Path, statement: str, value: object = None) -> int:
    """Edits the file as no part of the program would; how many rows that changed."""
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA foreign_keys=OFF")
        try:
            changed = connection.execute(statement, (value,) if "?" in statement else ()).rowcount
        except sqlite3.IntegrityError:
            return 0
        connection.commit()
    return changed


def one_row(column: Column[object], value: str = "?") -> str:
    """Of the first row that holds something there."""
    table = column.table.name
    first = f"SELECT rowid FROM {table} ORDER BY {column.name} IS NULL, rowid LIMIT 1"
    return f"UPDATE {table} SET {column.name} = {value} WHERE rowid = ({first})"


def damages(url: str, most: int | None = None) -> list[Damage]:
    engine = open_database(url)
    try:
        return list(islice(Repository(engine).verify(), most))
    finally:
        engine.dispose()


def ask_everything(url: str, folder: Path) -> None:
    """Each question is answered, or refused in words."""
    engine, other = open_database(url), open_database(fresh(folder / "other.db"))
    repository = Repository(engine)
    questions: tuple[Callable[[], object], ...] = (
        repository.sessions,
        repository.call_summaries,
        lambda: repository.calls("first"),
        lambda: list(write_sessions(engine, SESSIONS, folder / "sessions.polar")),
        lambda: copy_shared(engine, other),
    )
    try:
        for ask in questions:
            with suppress(PolarproxyError, DBAPIError):
                ask()
    finally:
        engine.dispose()
        other.dispose()


def test_verify_ends_and_everybody_else_is_told(url: str, file: Path, filled: bytes, tmp_path: Path) -> None:
    """In each round one column of every table that has so many."""
    junk, tried = cycle((*JUNK, None)), 0
    for together in zip_longest(*(table.columns for table in metadata.sorted_tables)):
        change(file, filled, "SELECT 1")
        for column in together:
            value = next(junk)
            if column is not None:
                tried += edit(file, one_row(column, NO_TEXT if value is None else "?"), value)
        damages(url)
        ask_everything(url, tmp_path)
    assert tried > 90


def test_verify_finds_what_is_read_as_something_that_nobody_wrote(url: str, file: Path, filled: bytes) -> None:
    """Of the record itself: a blob is no number, a text and a number are no blob."""
    for table in (sessions, calls, completions):
        for column in table.columns:
            wrong: object = -1.5 if column.type.python_type is bytes else b"\xff\xfe"
            # SQLAlchemy reads anything as true.
            if column.type.python_type is not bool and change(file, filled, one_row(column), wrong):
                assert damages(url, 1), column


@pytest.mark.parametrize(
    ("statement", "where"),
    [
        ("UPDATE sessions SET session_id = 'nobody' WHERE session_id = 'first'", "calls of session_id 'first'"),
        ("UPDATE completions SET call_id = 'nobody' WHERE call_id = 'first-1'", "completions of call_id 'nobody'"),
        ("DELETE FROM sessions WHERE session_id = 'second'", "rewards of session_id 'second'"),
        ("DELETE FROM blobs", "body_blobs of blob_digest"),
        ("UPDATE sessions SET session_id = x'00ff' WHERE session_id = 'first'", "session b'\\x00\\xff'"),
        ("UPDATE calls SET call_id = x'00ff' WHERE call_id = 'third-1'", "call b'\\x00\\xff' of session third"),
        ("UPDATE responses SET reply = input WHERE response_id = 'resp_1'", None),
        ("UPDATE responses SET reply = x'00' WHERE response_id = 'resp_1'", "call odd-2 of session odd"),
        ("UPDATE responses SET response_id = x'00' WHERE response_id = 'resp_1'", "call odd-2 of session odd"),
        (f"UPDATE calls SET error = {NO_TEXT} WHERE call_id = 'third-1'", "call third-1 of session third"),
        (f"UPDATE sessions SET task_id = {NO_TEXT} WHERE session_id = 'third'", "session third"),
    ],
)
def test_verify_names_the_row(url: str, file: Path, filled: bytes, statement: str, where: str | None) -> None:
    assert change(file, filled, statement)
    found = [damage.where for damage in damages(url)]
    assert found == [] if where is None else any(one.startswith(where) for one in found), found


def test_an_image_that_a_prune_would_take_is_told(url: str, file: Path, filled: bytes) -> None:
    assert change(file, filled, "DELETE FROM body_blobs")
    (damage,) = damages(url)
    assert damage.where.startswith("body ")
    assert "pruned" in damage.what


def test_a_new_process_still_takes_calls_of_a_session_with_any_damage(url: str, file: Path, filled: bytes) -> None:
    """What was written before is no reason to lose what is sampled now."""
    junk = cycle(JUNK)
    edits: list[tuple[str, object]] = [
        (f"UPDATE {table.name} SET {column.name} = ? WHERE call_id = 'first-3'", next(junk))
        for table in (calls, completions)
        for column in table.columns
        if not column.primary_key and column.name not in ("session_id", "ordinal")
    ]
    edits.append((f"UPDATE calls SET error = {NO_TEXT} WHERE call_id = 'first-3'", None))
    for statement, value in edits:
        assert change(file, filled, statement, value)
        engine = open_database(url)
        writer = Writer(engine)
        try:
            writer.submit(new_call(a_call("new", 9, [1, 2], [3], session_id="first"))).result(SECONDS)
        finally:
            writer.close()
            engine.dispose()


def test_a_name_that_cannot_be_read_is_damage_and_no_fault_of_who_asks(url: str, file: Path, filled: bytes) -> None:
    assert change(file, filled, f"UPDATE token_texts SET {token_texts.c.model.name} = x'00'")
    engine: Engine = open_database(url)
    assert Repository(engine).token_texts("m") == {}
    engine.dispose()
    assert change(file, filled, "UPDATE sessions SET created_at = 'x' WHERE session_id = 'first'")
    engine = open_database(url)
    with pytest.raises(StoreDamaged, match="nobody wrote"):
        Repository(engine).sessions()
    engine.dispose()


def test_a_schema_that_cannot_even_be_quoted_is_told(url: str, file: Path, filled: bytes) -> None:
    before = b"CREATE TABLE blobs ("
    assert before in filled
    assert change(file, filled.replace(before, b"CREATE TABLE blobs \xfc"), "SELECT 1") <= 0
    engine = open_database(url)
    with pytest.raises(WrongDatabase, match="cannot be read as a database"):
        current(engine)
    engine.dispose()
