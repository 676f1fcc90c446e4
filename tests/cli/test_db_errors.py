"""The tools of the store and a database that they cannot use: a sentence, an exit code, and not a byte changed."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.cli.command import Command
from tests.database import fresh
from tests.postgres import Server

TOOLS = [
    ("db", "stats"),
    ("db", "prune", "--older-than", "1d", "--yes"),
    ("db", "export", "new.polar", "--all"),
    ("db", "import", "run.polar"),
    ("db", "migrate", "--to", "sqlite:///new.db"),
    ("db", "verify"),
    ("sessions", "list"),
    ("calls", "show", "c1"),
    ("export", "--out", "new.jsonl"),
]
CHANGING = [TOOLS[1], TOOLS[3]]


@pytest.fixture(autouse=True)
def archive(polarproxy: Command, db: str) -> None:
    assert polarproxy("db", "export", "run.polar", "--all", "--db", db).code == 0


def newer(file: Path) -> None:
    fresh(file)
    with sqlite3.connect(file) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    connection.close()


def foreign(file: Path) -> None:
    with sqlite3.connect(file) as connection:
        connection.execute("CREATE TABLE photos (name TEXT)")
    connection.close()


def diary(file: Path) -> None:
    file.write_bytes(b"Dear diary, " * 400)


def empty(file: Path) -> None:
    file.touch()


UNUSABLE = {"no database": diary, "foreign": foreign, "newer": newer, "empty": empty}


@pytest.mark.parametrize("kind", UNUSABLE)
@pytest.mark.parametrize("tool", TOOLS, ids=" ".join)
def test_a_database_that_cannot_be_used_is_left_as_it_is(polarproxy: Command, tool: tuple[str, ...], kind: str) -> None:
    file = Path("bad.db")
    UNUSABLE[kind](file)
    before = file.read_bytes()
    done = polarproxy(*tool, "--db", "sqlite:///bad.db")
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("error: ")
    assert done.err.count("\n") == 1
    # To upgrade it would be bad advice.
    assert ("made by a newer polarproxy" in done.err) == (kind == "newer")
    assert file.read_bytes() == before
    assert not Path("new.polar").exists()
    assert not Path("new.db").exists()


@pytest.mark.parametrize("kind", [kind for kind in UNUSABLE if kind != "empty"])
@pytest.mark.parametrize("tool", [("serve", "--upstream", "http://127.0.0.1:9", "--port", "0"), ("db", "upgrade")])
def test_beside_a_database_that_is_not_ours_nothing_is_made(
    polarproxy: Command, tool: tuple[str, ...], kind: str
) -> None:
    """No lock, and no key: somebody else's folder may be full of databases."""
    file = Path("bad.db")
    UNUSABLE[kind](file)
    before, there = file.read_bytes(), set(Path().iterdir())
    done = polarproxy(*tool, "--db", "sqlite:///bad.db")
    assert (done.code, done.out) == (2, "")
    assert set(Path().iterdir()) == there
    assert file.read_bytes() == before


NOWHERE = [
    "sqlite:///none.db",
    "sqlite:///none/none.db",
    "sqlite:///run.polar/none.db",
    "sqlite:///.",
    "sqlite:///polar.db?mode=ro",
    "sqlite://",
    "mysql://x",
    "what",
    "postgresql://somebody@nowhere:port/x",
]


@pytest.mark.parametrize("url", NOWHERE)
@pytest.mark.parametrize("tool", TOOLS, ids=" ".join)
def test_a_url_that_leads_nowhere(polarproxy: Command, tool: tuple[str, ...], url: str) -> None:
    before = set(Path().iterdir())
    done = polarproxy(*tool, "--db", url)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("error: ")
    assert done.err.count("\n") == 1
    assert set(Path().iterdir()) == before


@pytest.mark.parametrize("file", ["recorded.db", "run/recorded.db", "/none/a b.db"])
def test_a_file_in_place_of_a_url_is_spelled_as_one(polarproxy: Command, file: str) -> None:
    done = polarproxy("sessions", "list", "--db", file)
    assert (done.code, f"did you mean sqlite:///{file}?" in done.err) == (2, True)


@pytest.mark.parametrize("url", NOWHERE[4:])
@pytest.mark.parametrize("tool", [("serve", "--upstream", "http://127.0.0.1:9"), ("db", "upgrade")], ids=" ".join)
def test_no_database_is_made_nowhere(polarproxy: Command, tool: tuple[str, ...], url: str) -> None:
    before = set(Path().iterdir())
    done = polarproxy(*tool, "--db", url)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("error: ")
    assert set(Path().iterdir()) == before


@pytest.mark.parametrize("kind", ["no database", "foreign", "newer"])
def test_nothing_is_copied_into_what_is_not_ours(polarproxy: Command, db: str, kind: str) -> None:
    file = Path("bad.db")
    UNUSABLE[kind](file)
    before = file.read_bytes()
    done = polarproxy("db", "migrate", "--to", "sqlite:///bad.db", "--db", db)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("error: ")
    assert file.read_bytes() == before


@pytest.mark.parametrize("url", ["mysql://x", "what", "sqlite://", "sqlite:///none/none.db"])
def test_nothing_is_copied_to_nowhere(polarproxy: Command, db: str, url: str) -> None:
    done = polarproxy("db", "migrate", "--to", url, "--db", db)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("error: ")


def test_a_postgresql_that_does_not_answer(polarproxy: Command, db: str) -> None:
    pytest.importorskip("psycopg")
    done = polarproxy("db", "migrate", "--to", "postgresql://nobody@/none?host=/nowhere", "--db", db)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("error: ")


def test_a_postgresql_that_wants_another_password(polarproxy: Command, postgres: Server) -> None:
    rules = postgres.folder / "data" / "pg_hba.conf"
    postgres.execute("CREATE ROLE guarded LOGIN PASSWORD 'right'")
    rules.write_text(f"local all guarded scram-sha-256\n{rules.read_text()}")
    postgres.execute("SELECT pg_reload_conf()")
    url = postgres.url("postgres").replace("polarproxy@", "guarded:wrong@")
    assert url != postgres.url("postgres")
    done = polarproxy("sessions", "list", "--db", url)
    assert (done.code, done.out) == (2, "")
    assert "password authentication failed" in done.err
    assert "wrong" not in done.err
    assert done.err.count("\n") == 1


@contextmanager
def somebody() -> Iterator[None]:
    """Root may write everywhere, so that it is somebody else for a while."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def locked() -> Iterator[Path]:
    """A folder with a database in it, which nobody may enter."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        fresh(folder / "polar.db")
        folder.chmod(0)
        yield folder
        folder.chmod(0o755)


@pytest.mark.parametrize("tool", [*TOOLS, ("serve", "--upstream", "http://127.0.0.1:9")], ids=" ".join)
def test_a_folder_that_nobody_may_enter(polarproxy: Command, locked: Path, tool: tuple[str, ...]) -> None:
    with somebody():
        done = polarproxy(*tool, "--db", f"sqlite:///{locked}/polar.db")
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("error: ")
    assert "Permission denied" in done.err


def test_settings_in_a_folder_that_nobody_may_enter(
    polarproxy: Command, locked: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They may say which database is meant, so that none is opened without them."""
    locked.chmod(0o700)
    monkeypatch.chdir(locked)
    locked.chmod(0)
    with somebody():
        done = polarproxy("sessions", "list")
    assert (done.code, done.out) == (2, "")
    assert "polarproxy.toml cannot be read: Permission denied" in done.err


@pytest.mark.parametrize("tool", CHANGING, ids=" ".join)
def test_a_file_that_may_only_be_read(
    polarproxy: Command, monkeypatch: pytest.MonkeyPatch, tool: tuple[str, ...]
) -> None:
    with TemporaryDirectory() as name:
        folder = Path(name)
        file = folder / "polar.db"
        url = fresh(file)
        connection = sqlite3.connect(file)
        connection.execute("PRAGMA journal_mode=DELETE")
        connection.execute(
            "INSERT INTO sessions (session_id, created_at, origin, status, metadata)"
            " VALUES ('s', '2020-01-01 00:00:00.000000', 'api', 'open', '[]')"
        )
        connection.commit()
        connection.close()
        Path("run.polar").rename(folder / "run.polar")
        file.chmod(0o444)
        folder.chmod(0o555)
        before = file.read_bytes()
        monkeypatch.chdir(folder)
        with somebody():
            done = polarproxy(*tool, "--db", url)
        folder.chmod(0o755)
        assert (done.code, done.out) == (1, "")
        assert "readonly" in done.err
        assert file.read_bytes() == before


@pytest.mark.parametrize("tool", [("db", "upgrade"), ("serve", "--upstream", "http://127.0.0.1:9", "--port", "0")])
def test_nothing_is_recorded_to_a_file_that_may_only_be_read(
    polarproxy: Command, monkeypatch: pytest.MonkeyPatch, tool: tuple[str, ...]
) -> None:
    """WAL is on already, so that SQLite itself would say nothing before the first call is stored."""
    with TemporaryDirectory() as name:
        file = Path(name) / "polar.db"
        url = fresh(file)
        Path(name).chmod(0o777)
        file.chmod(0o444)
        before = file.read_bytes()
        monkeypatch.chdir(name)
        with somebody():
            done = polarproxy(*tool, "--db", url)
        assert (done.code, done.out) == (2, "")
        assert f"{file} may only be read" in done.err
        assert file.read_bytes() == before


@pytest.mark.parametrize("tool", [("sessions", "list"), ("db", "upgrade")], ids=" ".join)
def test_a_folder_that_may_only_be_read(
    polarproxy: Command, monkeypatch: pytest.MonkeyPatch, tool: tuple[str, ...]
) -> None:
    with TemporaryDirectory() as name:
        url = fresh(Path(name) / "polar.db")
        Path(name).chmod(0o555)
        monkeypatch.chdir(name)
        with somebody():
            done = polarproxy(*tool, "--db", url)
        Path(name).chmod(0o755)
        assert (done.code, done.out) == (2, "")
        assert "copy it to a folder of yours" in done.err
