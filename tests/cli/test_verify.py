"""`verify` checks a database from what is in it; `export` refuses what it finds wrong, and says so."""

import sqlite3
from pathlib import Path

import pytest

from polarproxy.model import Usage
from polarproxy.store.database import open_database
from polarproxy.store.items import Fact
from polarproxy.store.schema import DELIVERED
from polarproxy.store.writer import Writer
from tests.cli.command import Command
from tests.store.samples import NOW, a_call, new_call


@pytest.fixture
def wrong(db: str) -> str:
    """A third call of `good`, of which the engine counted more than it showed."""
    engine = open_database(db)
    writer = Writer(engine)
    call = a_call("c5", 2, (7, 8), (10, 13), session_id="good", usage=Usage(2, 3))
    writer.submit(new_call(call)).result(20)
    writer.submit(Fact("c5", NOW, DELIVERED, "yes")).result(20)
    writer.close()
    engine.dispose()
    return db


def test_a_sound_database_passes_with_its_warnings(polarproxy: Command, db: str) -> None:
    done = polarproxy("verify", "--db", db, "--json")
    assert done.code == 0, done
    assert done.json["errors"] == {}
    assert done.json["warnings"] == {"logprobs_mode_unknown": 4, "temperature_unknown": 4}
    found = {found["session_id"]: (found["sound"], found["lag"]) for found in done.json["sessions"]}
    assert found == {"good": (True, 0), "bad": (True, 0)}
    done = polarproxy("verify", "--db", db)
    assert done.code == 0
    assert "every id, logprob and count agrees" in done.out
    assert "left out: aborted" in done.out


def test_an_error_is_named_and_fails(polarproxy: Command, wrong: str) -> None:
    done = polarproxy("verify", "--db", wrong)
    assert done.code == 1
    assert "the engine counted 3 sampled tokens, recorded: 2" in done.out
    assert "c5" in done.out
    found = polarproxy("verify", "--db", wrong, "--json", "--session", "good", "--version", 4)
    assert found.code == 1
    (session,) = found.json["sessions"]
    assert session["lag"] == 4
    errors = [finding for finding in session["findings"] if finding["severity"] == "error"]
    assert [(error["code"], error["call_id"]) for error in errors] == [("usage_completion", "c5")]
    assert polarproxy("verify", "--db", wrong, "--session", "bad").code == 0


def test_a_damaged_session_fails_and_the_rest_is_checked(polarproxy: Command, tmp_path: Path, db: str) -> None:
    if not db.startswith("sqlite"):
        pytest.skip("the damage is done to the file")
    with sqlite3.connect(tmp_path / "recorded.db") as connection:
        connection.execute("UPDATE completions SET digest = x'00' WHERE call_id = 'c3'")
    connection.close()
    done = polarproxy("verify", "--db", db, "--json")
    assert done.code == 1
    assert list(done.json["damaged"]) == ["bad"]
    assert [found["session_id"] for found in done.json["sessions"]] == ["good"]


def test_a_session_that_is_not_there_is_wrong_use(polarproxy: Command, db: str) -> None:
    assert polarproxy("verify", "--db", db, "--session", "none").code == 2


def test_an_export_refuses_rows_with_errors_unless_told_otherwise(
    polarproxy: Command, wrong: str, tmp_path: Path
) -> None:
    out = tmp_path / "rows.jsonl"
    done = polarproxy("export", "--db", wrong, "--out", out, "--json")
    assert done.code == 1
    assert done.json["refused_rows"] == {"rows": 1, "by_code": {"usage_completion": 1}}
    assert done.json["left_out"]["calls"]["refused"] == 1
    assert done.json["findings"]["usage_completion"] == 1
    assert (done.json["rows"], len(out.read_text().splitlines())) == (2, 2)
    assert "1 row had turns refused" in polarproxy("export", "--db", wrong, "--out", out).out
    done = polarproxy("export", "--db", wrong, "--out", out, "--json", "--no-strict")
    assert (done.code, done.json["rows"]) == (0, 3)
    assert done.json["refused_rows"]["rows"] == 0


def test_sessions_of_which_too_little_is_trained_are_refused(polarproxy: Command, db: str, tmp_path: Path) -> None:
    """Of `bad`, two of three sampled tokens are."""
    out = tmp_path / "rows.jsonl"
    for least, rows, left_out in ((0.6, 2, {}), (0.7, 1, {"low_coverage": 1})):
        report = polarproxy("export", "--db", db, "--out", out, "--json", "--min-coverage", least).json
        assert (report["rows"], report["left_out"]["sessions"]) == (rows, left_out)
    done = polarproxy("export", "--db", db, "--out", out, "--min-coverage", "7")
    assert done.code == 2
    assert "coverage lies between 0 and 1" in done.err
