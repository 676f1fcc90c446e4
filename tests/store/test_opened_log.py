"""Who removes or replaces the log of a database that is in use loses nothing of what was acknowledged."""

import logging
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from random import Random

import pytest
from sqlalchemy import Engine, event, text

from polarproxy.errors import StoreUnavailable
from polarproxy.store.database import open_database
from polarproxy.store.repository import Repository
from polarproxy.store.writer import Writer
from tests.database import ON_SQLITE
from tests.store.samples import a_call, new_call

pytestmark = ON_SQLITE

SECONDS = 20


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others are not waited for, and nothing is done unasked."""
    monkeypatch.setattr("polarproxy.store.writer._LOOK_S", 60)
    monkeypatch.setattr("polarproxy.store.opened_log._BUSY_S", 0.02)
    monkeypatch.setattr("polarproxy.store.opened_log._PAUSE_S", 0.001)


@pytest.fixture
def idle(soon: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer to which nothing comes looks after its files all the time."""
    monkeypatch.setattr("polarproxy.store.writer._LOOK_S", 0.01)


@pytest.fixture
def writer(engine: Engine) -> Iterator[Writer]:
    made = Writer(engine)
    yield made
    made.close()


def log(file: Path) -> Path:
    return file.with_name(file.name + "-wal")


def index(file: Path) -> Path:
    return file.with_name(file.name + "-shm")


def without_log(file: Path) -> None:
    log(file).unlink()


def without_index(file: Path) -> None:
    index(file).unlink()


def without_both(file: Path) -> None:
    without_log(file)
    without_index(file)


def with_an_empty_one(file: Path) -> None:
    without_both(file)
    log(file).touch()


def with_a_copy(file: Path) -> None:
    """As after a restored backup: the same content, until the next commit."""
    copy = shutil.copy(log(file), file.with_name("copy"))
    Path(copy).replace(log(file))


DAMAGES = pytest.mark.parametrize(
    "damage", [without_log, without_index, without_both, with_an_empty_one, with_a_copy], ids=lambda each: each.__name__
)
Damage = Callable[[Path], None]


def write(writer: Writer, *numbers: int) -> None:
    for number in numbers:
        writer.submit(new_call(a_call(f"c{number}", number, request_body=Random(number).randbytes(9000)))).result(
            SECONDS
        )


def soon_true(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def sound_without_its_log(file: Path, folder: Path) -> None:
    """Nothing is in the file that needs what the log holds."""
    folder.mkdir()
    with closing(sqlite3.connect(shutil.copy(file, folder))) as copy:
        assert copy.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def left_by_a_kill(file: Path, folder: Path) -> list[str]:
    """The calls that would be found: of what has a name now, read as if nobody had it open."""
    folder.mkdir()
    for name in (file, log(file)):
        if name.exists():
            shutil.copy(name, folder)
    engine = open_database(f"sqlite:///{folder / file.name}")
    repository = Repository(engine)
    assert list(repository.verify()) == []
    found = [captured.call.call_id for captured in repository.calls("s1")]
    with engine.begin() as connection:
        assert connection.execute(text("PRAGMA integrity_check")).scalar_one() == "ok"
    engine.dispose()
    return found


@DAMAGES
def test_what_was_acknowledged_is_saved_before_more_is(
    writer: Writer, file: Path, tmp_path: Path, damage: Damage, caplog: pytest.LogCaptureFixture
) -> None:
    write(writer, 0, 1)
    damage(file)
    write(writer, 2)
    assert left_by_a_kill(file, tmp_path / "a") == ["c0", "c1", "c2"]
    write(writer, 3)
    damage(file)
    write(writer, 4)
    assert left_by_a_kill(file, tmp_path / "b") == ["c0", "c1", "c2", "c3", "c4"]
    said = [record.message for record in caplog.records if record.levelno == logging.WARNING]
    assert len(said) == 2
    assert all(f"the log of {file} (polar.db-wal) was removed or replaced" in each for each in said)


@DAMAGES
def test_it_is_saved_before_a_commit_is_told_of(
    writer: Writer, engine: Engine, file: Path, tmp_path: Path, damage: Damage
) -> None:
    """Removed in the very moment."""
    write(writer, 0)
    event.listen(engine, "commit", lambda _: damage(file), once=True)
    write(writer, 1)
    assert left_by_a_kill(file, tmp_path / "a") == ["c0", "c1"]


def test_a_log_that_is_put_back_is_as_good_as_before(
    writer: Writer, file: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(writer, 0)
    log(file).rename(file.with_name("aside")).rename(log(file))
    write(writer, 1)
    assert left_by_a_kill(file, tmp_path / "a") == ["c0", "c1"]
    assert caplog.records == []


def test_a_log_that_is_begun_anew_is_the_same(
    writer: Writer, file: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(writer, 0)
    with closing(sqlite3.connect(file)) as other:
        assert other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone() == (0, 0, 0)
    write(writer, 1)
    assert left_by_a_kill(file, tmp_path / "a") == ["c0", "c1"]
    assert caplog.records == []


def test_a_log_beside_the_file_that_a_link_leads_to(file: Path, tmp_path: Path, engine: Engine) -> None:
    link = tmp_path / "link.db"
    link.symlink_to(file)
    linked = open_database(f"sqlite:///{link}")
    writer = Writer(linked)
    write(writer, 0)
    without_both(file)
    write(writer, 1)
    assert left_by_a_kill(file, tmp_path / "a") == ["c0", "c1"]
    writer.close()
    linked.dispose()


@DAMAGES
def test_while_others_have_the_old_one_nothing_more_is_taken(
    writer: Writer, file: Path, tmp_path: Path, damage: Damage
) -> None:
    write(writer, 0)
    with closing(sqlite3.connect(file)) as other:
        other.execute("SELECT count(*) FROM calls").fetchall()
        damage(file)
        for _ in range(2):
            with pytest.raises(
                StoreUnavailable, match="it is saved and made anew when nothing else has the database open"
            ):
                write(writer, 1)
        assert writer.trouble is not None
        sound_without_its_log(file, tmp_path / "a")
    write(writer, 1)
    assert writer.trouble is None
    assert left_by_a_kill(file, tmp_path / "b") == ["c0", "c1"]


@DAMAGES
def test_what_others_write_to_the_old_one_meanwhile_is_saved_too(
    writer: Writer, file: Path, tmp_path: Path, damage: Damage
) -> None:
    write(writer, 0)
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("SELECT count(*) FROM calls").fetchall()
        damage(file)
        with pytest.raises(StoreUnavailable):
            write(writer, 1)
        fact = ("c0", "2026-01-01 00:00:00.000000", "seen", "x")
        other.execute("INSERT INTO call_facts (call_id, recorded_at, name, value) VALUES (?, ?, ?, ?)", fact)
    write(writer, 1)
    assert left_by_a_kill(file, tmp_path / "b") == ["c0", "c1"]
    with closing(sqlite3.connect(tmp_path / "b" / file.name)) as copy:
        assert copy.execute("SELECT value FROM call_facts").fetchall() == [("x",)]


def test_a_reader_of_the_same_process_holds_it_up_as_long_as_it_reads(
    writer: Writer, engine: Engine, file: Path, tmp_path: Path
) -> None:
    write(writer, 0)
    with engine.connect() as reading:
        reading.execute(text("SELECT count(*) FROM calls")).all()
        without_both(file)
        with pytest.raises(StoreUnavailable):
            write(writer, 1)
        assert reading.execute(text("SELECT count(*) FROM calls")).scalar_one() == 1
        sound_without_its_log(file, tmp_path / "b")
    write(writer, 1)
    assert left_by_a_kill(file, tmp_path / "a") == ["c0", "c1"]


def test_beside_a_reader_of_the_past_the_file_is_not_torn(
    engine: Engine, writer: Writer, file: Path, tmp_path: Path
) -> None:
    """What a checkpoint could bring in then is not all that the file needs."""
    write(writer, *range(60))
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("BEGIN")
        other.execute("SELECT count(*) FROM calls").fetchall()
        write(writer, 60, 61)
        log(file).unlink()
        with pytest.raises(StoreUnavailable):
            write(writer, 62)
        sound_without_its_log(file, tmp_path / "a")
    write(writer, 62)
    assert left_by_a_kill(file, tmp_path / "b") == [f"c{number}" for number in range(63)]


def test_nobody_opens_another_log_meanwhile(writer: Writer, engine: Engine, repository: Repository, file: Path) -> None:
    write(writer, 0)
    engine.dispose()
    without_both(file)
    with pytest.raises(StoreUnavailable, match="removed or replaced while it was in use; it is saved within a second"):
        repository.calls("s1")
    write(writer, 1)
    assert len(repository.calls("s1")) == 2


def test_what_is_closed_saves_it_whoever_goes_on(writer: Writer, engine: Engine, file: Path, tmp_path: Path) -> None:
    write(writer, 0)
    with engine.connect():
        pass
    without_both(file)
    writer.close()
    assert left_by_a_kill(file, tmp_path / "a") == ["c0"]


@DAMAGES
def test_it_is_saved_soon_when_nothing_more_is_written(
    idle: None, engine: Engine, file: Path, tmp_path: Path, damage: Damage, caplog: pytest.LogCaptureFixture
) -> None:
    writer = Writer(engine)
    write(writer, 0)
    damage(file)
    soon_true(lambda: "what it held was saved" in caplog.text)
    assert left_by_a_kill(file, tmp_path / "a") == ["c0"]
    writer.close()


def test_a_file_that_is_gone_is_said_soon(idle: None, engine: Engine, file: Path) -> None:
    writer = Writer(engine)
    write(writer, 0)
    aside = file.rename(file.with_name("aside"))
    soon_true(lambda: writer.trouble is not None)
    assert "put that back" in str(writer.trouble)
    aside.rename(file)
    write(writer, 1)
    assert writer.trouble is None
    writer.close()


def test_a_folder_that_is_gone_for_a_while_does_not_end_the_writer(idle: None, engine: Engine, file: Path) -> None:
    """In its place lies a file, or a link to itself: other errors than that of a file that is gone."""
    writer = Writer(engine)
    write(writer, 0)
    folder, aside = file.parent, file.parent.with_name(f"{file.parent.name}-aside")
    for number in (1, 2):
        folder.rename(aside)
        if number == 1:
            folder.touch()
        else:
            folder.symlink_to(folder)
        soon_true(lambda: writer.trouble is not None)
        with pytest.raises(StoreUnavailable):
            write(writer, number)
        folder.unlink()
        aside.rename(folder)
        write(writer, number)
        assert writer.trouble is None
    writer.close()
