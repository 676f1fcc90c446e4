"""`polarproxy db stats`, `prune`, `export`, `import` and `migrate`: what they say, and what they leave."""

import json
from pathlib import Path

import pytest
from sqlalchemy import Engine

from polarproxy.store.database import open_database
from polarproxy.store.migrate import upgrade
from polarproxy.store.repository import Repository
from tests.cli.command import Command
from tests.database import fresh
from tests.postgres import Server
from tests.store.filled import contents


def opened(url: str) -> Engine:
    return open_database(url)


def everything(url: str) -> dict[str, list[object]]:
    engine = opened(url)
    found = contents(engine)
    engine.dispose()
    return found


@pytest.fixture
def other(tmp_path: Path) -> str:
    return fresh(tmp_path / "other.db")


def test_stats(polarproxy: Command, db: str) -> None:
    found = polarproxy("db", "stats", "--db", db, "--json").json
    counted = ("sessions", "rewarded_sessions", "calls", "prompt_tokens", "sampled_tokens", "positions")
    assert [found[name] for name in counted] == [2, 2, 4, 12, 7, 19]
    assert found["dedup_ratio"] == pytest.approx(19 / found["stored_tokens"])
    assert found["table_bytes"]["calls"] > 0
    done = polarproxy("db", "stats", "--db", db)
    assert done.code == 0
    for text in ("prompt tokens as sent", "tokens sent per token stored", "bytes by table", "token_texts"):
        assert text in done.out


def test_stats_of_nothing(polarproxy: Command, other: str) -> None:
    found = polarproxy("db", "stats", "--db", other, "--json").json
    assert (found["calls"], found["dedup_ratio"]) == (0, None)
    assert polarproxy("db", "stats", "--db", other).code == 0


# Prune: the sessions of the fixture were made at the beginning of 2026, and rewarded today


def test_a_dry_run_says_what_would_go(polarproxy: Command, db: str) -> None:
    before = everything(db)
    found = polarproxy("db", "prune", "--older-than", "0d", "--dry-run", "--db", db, "--json").json
    assert (found["sessions"], found["calls"], found["sampled_tokens"], found["rewards"]) == (2, 4, 7, 2)
    assert found["bytes"] > 0
    assert "would be freed" in polarproxy("db", "prune", "--older-than", "0d", "--dry-run", "--db", db).out
    assert everything(db) == before


def test_nothing_goes_without_a_yes(polarproxy: Command, db: str) -> None:
    before = everything(db)
    done = polarproxy("db", "prune", "--older-than", "0d", "--db", db)
    assert (done.code, done.out) == (2, "")
    assert "say --yes" in done.err
    assert everything(db) == before


def test_old_sessions_go(polarproxy: Command, db: str) -> None:
    for kept in (("1d",), ("0d", "--keep-rewarded")):
        assert polarproxy("db", "prune", "--older-than", *kept, "--yes", "--db", db, "--json").json["sessions"] == 0
    done = polarproxy("db", "prune", "--older-than", "0d", "--yes", "--vacuum", "--db", db)
    assert (done.code, "freed" in done.out, "wait for new calls" in done.out) == (0, True, False)
    assert polarproxy("sessions", "list", "--db", db, "--json").json == []
    assert polarproxy("db", "verify", "--db", db).code == 0


@pytest.mark.parametrize("age", ["", "30", "d", "-3d", "3.5d", "3 days", "99999999999d", "1y"])
def test_an_age_that_is_none(polarproxy: Command, db: str, age: str) -> None:
    done = polarproxy("db", "prune", f"--older-than={age}", "--yes", "--db", db)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("error: --older-than")
    assert polarproxy("db", "prune", "--yes", "--db", db).code == 2


# Archives


def test_sessions_go_through_an_archive(polarproxy: Command, db: str, other: str) -> None:
    written = polarproxy("db", "export", "run.polar", "--group", "g", "--db", db, "--json").json
    assert written == {"file": "run.polar", "sessions": 2, "bytes": Path("run.polar").stat().st_size}
    taken = polarproxy("db", "import", "run.polar", "--db", other, "--json").json
    assert taken == {"imported": ["bad", "good"], "already_there": 0}
    assert everything(other) == everything(db)
    assert "0 sessions imported, 2 there already" in polarproxy("db", "import", "run.polar", "--db", other).out
    assert polarproxy("db", "verify", "--db", other).code == 0


def test_which_sessions_must_be_said_once(polarproxy: Command, db: str) -> None:
    for chosen in ((), ("--all", "--group", "g"), ("--session", "good", "--all")):
        done = polarproxy("db", "export", "run.polar", *chosen, "--db", db)
        assert (done.code, done.out) == (2, "")
    assert polarproxy("db", "export", "run.polar", "--session", "nobody", "--db", db).code == 2
    assert polarproxy("db", "export", "run.polar", "--group", "nothing", "--db", db).code == 2
    assert not Path("run.polar").exists()
    done = polarproxy("db", "export", "run.polar", "--session", "good", "--session", "bad", "--db", db)
    assert "run.polar holds 2 sessions" in done.out


def test_a_file_is_not_replaced_unasked(polarproxy: Command, db: str) -> None:
    """Least of all the database itself."""
    name = db.removeprefix("sqlite:///")
    before = Path(name).read_bytes()
    done = polarproxy("db", "export", name, "--all", "--db", db)
    assert (done.code, "--force" in done.err) == (2, True)
    assert Path(name).read_bytes() == before
    for _ in range(2):
        assert polarproxy("db", "export", "run.polar", "--all", "--force", "--db", db).code == 0


def test_an_export_that_cannot_be_written(polarproxy: Command, db: str) -> None:
    done = polarproxy("db", "export", "none/run.polar", "--all", "--db", db)
    assert (done.code, "cannot be written" in done.err) == (2, True)


def test_a_conflict_is_1_and_names_the_sessions(polarproxy: Command, db: str, other: str) -> None:
    polarproxy("db", "export", "run.polar", "--all", "--db", db)
    polarproxy("db", "export", "good.polar", "--session", "good", "--db", db)
    polarproxy("db", "import", "good.polar", "--db", other)
    polarproxy("reward", "set", "good", "0.5", "--db", other)
    before = everything(other)
    done = polarproxy("db", "import", "run.polar", "--db", other)
    assert (done.code, done.out) == (1, "")
    assert done.err == "error: nothing was imported; 1 of its sessions are there with another content: good\n"
    assert everything(other) == before


def test_a_file_that_is_no_archive_is_2(polarproxy: Command, db: str) -> None:
    polarproxy("db", "export", "run.polar", "--all", "--db", db)
    whole = Path("run.polar").read_bytes()
    Path("cut.polar").write_bytes(whole[: len(whole) // 2])
    Path("changed.polar").write_bytes(whole[:-9] + b"x" + whole[-8:])
    Path("diary.polar").write_bytes(b"Dear diary, " * 400)
    Path("empty.polar").touch()
    before = everything(db)
    for name in ("cut", "changed", "diary", "empty", "none"):
        done = polarproxy("db", "import", f"{name}.polar", "--db", db)
        assert (done.code, done.out) == (2, ""), name
        assert f"{name}.polar" in done.err
    assert everything(db) == before


# Migrate


def test_everything_is_copied_and_compared(polarproxy: Command, db: str) -> None:
    done = polarproxy("db", "migrate", "--to", "sqlite:///new.db", "--db", db)
    assert done.code == 0
    assert "2 copied" in done.out
    again = polarproxy("db", "migrate", "--to", "sqlite:///new.db", "--db", db, "--json").json
    assert (again["outcomes"]["there"], again["failed"]) == (2, [])
    assert {row["table"]: (row["here"], row["there"]) for row in again["rows"]}["calls"] == (4, 4)
    assert again["digest"] in done.out
    assert everything("sqlite:///new.db") == everything(db)


def test_to_postgresql_and_back(polarproxy: Command, db: str, postgres: Server) -> None:
    url = postgres.empty()
    assert polarproxy("db", "migrate", "--to", url, "--db", db, "--json").json["outcomes"]["copied"] == 2
    assert polarproxy("db", "verify", "--db", url).code == 0
    assert polarproxy("db", "stats", "--db", url, "--json").json["calls"] == 4
    assert polarproxy("db", "migrate", "--to", "sqlite:///back.db", "--db", url).code == 0
    assert everything("sqlite:///back.db") == everything(db)
    postgres.drop(url)


def test_what_is_not_the_same_there_is_1_and_named(polarproxy: Command, db: str) -> None:
    polarproxy("db", "migrate", "--to", "sqlite:///new.db", "--db", db)
    polarproxy("reward", "set", "good", "0.5", "--db", "sqlite:///new.db")
    done = polarproxy("db", "migrate", "--to", "sqlite:///new.db", "--db", db)
    assert done.code == 1
    assert "good" in done.out
    assert "another content" in done.out
    found = polarproxy("db", "migrate", "--to", "sqlite:///new.db", "--db", db, "--json")
    assert (found.code, [entry["session_id"] for entry in found.json["failed"]]) == (1, ["good"])
    assert {row["table"] for row in found.json["rows"] if row["differs"]} == {"rewards"}


@pytest.mark.parametrize("same", ["sqlite:///recorded.db", "sqlite:///./recorded.db"])
def test_a_database_is_not_copied_into_itself(polarproxy: Command, db: str, same: str) -> None:
    before = everything(db)
    done = polarproxy("db", "migrate", "--to", same, "--db", db)
    assert (done.code, "that is to be copied" in done.err) == (2, True)
    assert everything(db) == before


def test_an_older_target_is_brought_up_and_a_newer_source_is_not_read(polarproxy: Command, db: str) -> None:
    Path("empty.db").touch()
    assert polarproxy("db", "migrate", "--to", "sqlite:///empty.db", "--db", db).code == 0
    engine = opened(db)
    with engine.begin() as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
    engine.dispose()
    done = polarproxy("db", "migrate", "--to", "sqlite:///another.db", "--db", db)
    assert (done.code, "9999" in done.err) == (2, True)
    assert not Path("another.db").exists()


def test_json_is_one_document(polarproxy: Command, db: str, other: str) -> None:
    """Whatever the progress bar shows goes elsewhere."""
    for arguments in (("export", "run.polar", "--all"), ("import", "run.polar"), ("migrate", "--to", other)):
        assert isinstance(json.loads(polarproxy("db", *arguments, "--db", db, "--json").out), dict)
    assert len(Repository(opened(other)).session_ids()) == 2
    upgrade(opened(other))
