"""Every command says what is in the store: as a table for people, as one JSON document for programs."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from polarproxy import __version__
from polarproxy.cli.main import build
from polarproxy.export.options import ADVANTAGES
from polarproxy.store.revisions import head
from tests.cli.command import Command


def test_the_version_and_the_help(polarproxy: Command) -> None:
    assert polarproxy("--version").out.strip() == __version__
    done = polarproxy("--help")
    assert done.code == 0
    for name in ("serve", "demo", "export", "doctor", "sessions", "calls", "trajectories", "reward", "db", "upstreams"):
        assert name in done.out


def test_sessions_are_listed(polarproxy: Command, db: str) -> None:
    found = polarproxy("sessions", "list", "--db", db, "--json").json
    assert [(entry["session"]["session_id"], entry["calls"], entry["sampled_tokens"]) for entry in found] == [
        ("good", 2, 4),
        ("bad", 2, 3),
    ]
    assert found[0]["session"]["reward"] == {
        "value": 1.0,
        "components": [{"name": "tests", "value": 1.0, "kind": "Reward"}],
        "turns": [],
        "spec": None,
    }
    done = polarproxy("sessions", "list", "--db", db)
    assert done.code == 0
    assert "2 sessions" in done.out
    assert "good" in done.out


@pytest.mark.parametrize(("options", "count"), [(["--limit", "1"], 1), (["--limit", "0"], 2), (["--group", "g"], 2)])
def test_the_list_can_be_narrowed(polarproxy: Command, db: str, options: list[str], count: int) -> None:
    assert len(polarproxy("sessions", "list", "--db", db, "--json", *options).json) == count
    out = polarproxy("sessions", "list", "--db", db, *options).out
    assert ("1 session\n" if count == 1 else f"{count} sessions\n") in out
    assert ("--limit 0 shows all" in out) == (count == 1)


@pytest.mark.parametrize(
    "narrowed",
    [
        ("sessions", "list", "--group", "nobody"),
        ("reward", "list", "--group", "nobody"),
        ("reward", "list", "nobody"),
        ("calls", "list", "--session", "nobody"),
    ],
    ids=" ".join,
)
def test_a_list_of_what_is_not_there_is_empty_for_programs(
    polarproxy: Command, db: str, narrowed: tuple[str, ...]
) -> None:
    """A person is told, instead of being shown an empty table."""
    done = polarproxy(*narrowed, "--db", db)
    assert (done.code, done.out) == (2, "")
    assert "'nobody'" in done.err
    done = polarproxy(*narrowed, "--db", db, "--json")
    assert (done.code, done.json) == (2, [])
    assert "'nobody'" in done.err


def test_a_session_is_shown(polarproxy: Command, db: str) -> None:
    shown = polarproxy("sessions", "show", "bad", "--db", db, "--json").json
    assert shown["session"]["group_id"] == "g"
    assert [call["call_id"] for call in shown["calls"]] == ["c3", "c4"]
    assert shown["trajectory"]["left_out"] == {"aborted": 1}
    assert (shown["trajectory"]["captured_tokens"], shown["trajectory"]["trained_tokens"]) == (3, 2)
    done = polarproxy("sessions", "show", "bad", "--db", db)
    assert done.code == 0
    assert "aborted 1" in done.out
    assert "66.7%" in done.out


def test_a_session_is_shown_in_words(polarproxy: Command, db: str) -> None:
    """Not as Python spells its values."""
    given = ("good", "0.5", "--component", "tests=1", "--metric", "steps=3", "--turn", "0=0.25")
    assert polarproxy("reward", "set", *given, "--db", db).code == 0
    out = polarproxy("sessions", "show", "good", "--db", db).out
    assert "tests 1, steps 3 (metric)" in out
    assert "0 0.25" in out
    assert not set("{}<>'") & set(out)


def test_calls_are_listed(polarproxy: Command, db: str) -> None:
    calls = polarproxy("calls", "list", "--db", db, "--json").json
    assert [call["call_id"] for call in calls] == ["c1", "c2", "c3", "c4"]
    assert [call["delivered"] for call in calls] == [True, True, True, False]
    assert len(polarproxy("calls", "list", "--session", "good", "--db", db, "--json").json) == 2
    assert "4 calls" in polarproxy("calls", "list", "--db", db).out


def test_a_call_is_shown_down_to_the_token(polarproxy: Command, db: str) -> None:
    shown = polarproxy("calls", "show", "c2", "--db", db, "--json").json
    assert shown["prompt_token_ids"] == [1, 2, 10, 11, 3]
    (completion,) = shown["completions"]
    assert (completion["token_ids"], completion["text"], completion["left_out"]) == ([10, 12], "Hel!", None)
    assert completion["logprobs"] == [-0.5, -0.5]
    left_out = polarproxy("calls", "show", "c4", "--db", db, "--json").json
    assert left_out["completions"][0]["left_out"] == "aborted"
    done = polarproxy("calls", "show", "c2", "--tokens", "--db", db)
    assert "«Hel!»" in done.out
    assert "Say it [bold]." in done.out
    assert "-0.5000" in done.out
    plain = polarproxy("calls", "show", "c4", "--db", db).out
    assert "«" not in plain
    assert "-, -, -" in plain


def test_a_trajectory_is_shown_with_what_is_trained(polarproxy: Command, db: str) -> None:
    shown = polarproxy("trajectories", "show", "good", "--db", db, "--json").json
    (branch,) = shown["branches"]
    assert branch["token_ids"] == [1, 2, 10, 11, 3, 10, 12]
    assert [(turn["call_id"], turn["start"], turn["stop"], turn["trained"]) for turn in branch["turns"]] == [
        ("c1", 2, 4, True),
        ("c2", 5, 7, True),
    ]
    assert shown["coverage"] == 1.0
    done = polarproxy("trajectories", "show", "good", "--text", "--db", db)
    assert "coverage 100.0%: 4 of 4 sampled tokens trained" in done.out
    assert "«Hello»" in done.out


@pytest.mark.parametrize("name", ["rows.parquet", "rows.jsonl"])
def test_rows_are_exported(polarproxy: Command, db: str, name: str) -> None:
    done = polarproxy("export", "--out", name, "--db", db, "--json")
    assert done.code == 0
    assert done.json["rows"] == 2
    assert Path(name).stat().st_size > 0
    report = Path(f"{name}.report.json")
    assert json.loads(report.read_text())["rows"] == 2
    assert "sampled tokens trained" in polarproxy("export", "--out", name, "--db", db).out


def test_two_formats_do_not_share_a_report(polarproxy: Command, db: str) -> None:
    for name in ("a.jsonl", "a.parquet"):
        polarproxy("export", "--out", name, "--db", db)
    assert sorted(entry.name for entry in Path().glob("a.*.json")) == ["a.jsonl.report.json", "a.parquet.report.json"]


@pytest.mark.parametrize("taken", ["a.jsonl", "a.jsonl.report.json"])
def test_an_export_takes_the_place_of_regular_files_only(polarproxy: Command, db: str, taken: str) -> None:
    os.mkfifo(taken)
    done = polarproxy("export", "--out", "a.jsonl", "--db", db)
    assert (done.code, "no regular file" in done.err, Path(taken).is_fifo()) == (2, True, True)
    assert [entry.name for entry in Path().glob("a.*")] == [taken]


def test_a_group_that_is_none_is_wrong_use(polarproxy: Command, db: str) -> None:
    done = polarproxy("export", "--out", "a.jsonl", "--group", "typo", "--db", db)
    assert (done.code, "no session has the group 'typo'" in done.err) == (2, True)
    assert list(Path().glob("a.*")) == []


@pytest.mark.parametrize("option", [("--format-penalty", "nan"), ("--component-weight", "typo=1"), ("--alpha", "inf")])
def test_what_would_make_no_number_is_wrong_use(polarproxy: Command, db: str, option: tuple[str, str]) -> None:
    done = polarproxy("export", "--out", "a.jsonl", "--advantage", "gdpo", *option, "--db", db)
    assert (done.code, list(Path().glob("a.*"))) == (2, [])


@pytest.mark.parametrize("name", [name for name in ADVANTAGES if name != "gdpo"])
def test_every_estimator_can_be_asked_for(polarproxy: Command, db: str, name: str) -> None:
    done = polarproxy("export", "--out", "rows.jsonl", "--advantage", name, "--db", db, "--json")
    assert (done.code, done.json["rows"], done.json["advantage"]) == (0, 2, name)


def test_components_are_normalised_one_by_one(polarproxy: Command, db: str) -> None:
    """Of the two sessions one has components."""
    done = polarproxy("export", "--out", "rows.jsonl", "--advantage", "gdpo", "--db", db, "--json")
    assert done.json["left_out"]["sessions"] == {"no_components": 1}


def test_components_have_weights(polarproxy: Command, db: str) -> None:
    polarproxy("reward", "set", "good", "1", "--component", "tests=1", "--component", "long=0.5", "--db", db)
    polarproxy("reward", "set", "bad", "0", "--component", "tests=0", "--component", "long=0.1", "--db", db)

    def signs(*weights: str) -> dict[str, float]:
        polarproxy("export", "--out", "rows.jsonl", "--advantage", "gdpo", *weights, "--db", db)
        rows = [json.loads(line) for line in Path("rows.jsonl").read_text().splitlines()]
        return {row["session_id"]: max(row["advantages"], key=abs) > 0 for row in rows}

    assert signs() == {"good": True, "bad": False}
    assert signs("--component-weight", "long=-2") == {"good": False, "bad": True}


def test_groups_without_spread_can_stop_an_export(polarproxy: Command, db: str) -> None:
    polarproxy("reward", "set", "bad", "1", "--db", db)
    done = polarproxy("export", "--out", "rows.jsonl", "--on-collapse", "fail", "--db", db)
    assert (done.code, "so they teach nothing" in done.err, Path("rows.jsonl").exists()) == (1, True, False)
    done = polarproxy("export", "--out", "rows.jsonl", "--on-collapse", "drop", "--db", db, "--json")
    assert (done.code, done.json["left_out"]["sessions"]) == (1, {"flat_group": 2})


def test_flags_of_credit_reach_the_estimator(polarproxy: Command, db: str) -> None:
    flags = ["--advantage", "dapo", "--overlong", "penalty", "--overlong-limit", "3", "--overlong-buffer", "2"]
    polarproxy("reward", "set", "bad", "1", "--db", db)
    polarproxy("export", "--out", "rows.jsonl", *flags, "--db", db)
    rows = [json.loads(line) for line in Path("rows.jsonl").read_text().splitlines()]
    # `good` sampled 4 tokens and pays for it, `bad` 2.
    assert {row["session_id"]: max(row["advantages"], key=abs) > 0 for row in rows} == {"bad": True, "good": False}


def test_an_export_without_rows_has_found_something_wrong(polarproxy: Command, db: str) -> None:
    done = polarproxy("export", "--out", "rows.jsonl", "--where", "kind=probe", "--db", db)
    assert done.code == 1
    assert "no rows" in done.out


def test_a_model_that_sampled_nothing_is_said(polarproxy: Command, db: str) -> None:
    done = polarproxy("export", "--out", "rows.jsonl", "--model", "nobody", "--db", db)
    assert (done.code, "no call was sampled by the model 'nobody'" in done.err) == (2, True)
    assert not Path("rows.jsonl").exists()


@pytest.mark.parametrize(
    "options",
    [
        ["--out", "rows.txt"],
        ["--advantage", "luck"],
        ["--format", "csv"],
        ["--weighting", "per_day"],
        ["--gamma", "2"],
        ["--overlong", "penalty"],
        ["--component-weight", "tests"],
        ["--max-lag", "-1"],
    ],
    ids=str,
)
def test_an_export_that_makes_no_sense_is_wrong_use(polarproxy: Command, db: str, options: list[str]) -> None:
    assert polarproxy("export", "--db", db, *options).code == 2


# The database


def test_a_database_is_made_and_known(polarproxy: Command) -> None:
    assert polarproxy("db", "upgrade", "--db", "sqlite:///new.db").code == 0
    done = polarproxy("db", "current", "--db", "sqlite:///new.db")
    assert (done.code, head() in done.out) == (0, True)
    assert polarproxy("sessions", "list", "--db", "sqlite:///new.db", "--json").json == []
    assert polarproxy("calls", "list", "--db", "sqlite:///new.db").code == 0
    assert polarproxy("db", "verify", "--db", "sqlite:///new.db").code == 0


def test_the_schema_is_told_to_programs(polarproxy: Command) -> None:
    made = polarproxy("db", "upgrade", "--db", "sqlite:///new.db", "--json").json
    assert (made["database"], made["schema"]) == ("sqlite:///new.db", head())
    assert polarproxy("db", "current", "--db", "sqlite:///new.db", "--json").json == {
        "schema": head(),
        "needed": head(),
    }
    Path("empty.db").touch()
    done = polarproxy("db", "current", "--db", "sqlite:///empty.db", "--json")
    assert (done.code, done.json) == (1, {"schema": None, "needed": head()})


_NO_DATABASE = {
    "demo": "makes one",
    "generate": "the job names it",
    "doctor": "looks at engines",
    "db spool list": "looks at files",
    "db spool verify": "looks at files",
    "harness list": "looks at recipes",
    "harness show": "looks at recipes",
    "harness install": "looks at recipes",
    "harness check": "records to a database that is thrown away",
}
_NO_JSON = {
    "serve": "runs until it is stopped",
    "demo": "is for people",
    "admin-key": "prints one line, which is the key",
    "db spool drain": "says what it does meanwhile",
    "harness install": "says what it does meanwhile",
}


def commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, set[str]]]:
    """The name and the options of each command, beneath this one."""
    for name, one in getattr(command, "commands", {}).items():
        yield from commands(one, (*path, name))
    if not hasattr(command, "commands"):
        yield " ".join(path), {option for parameter in command.params for option in parameter.opts}


@pytest.mark.parametrize(("option", "without"), [("--db", _NO_DATABASE), ("--json", _NO_JSON)])
def test_every_command_takes_them(option: str, without: dict[str, str]) -> None:
    options = dict(commands(typer.main.get_command(build(()))))
    assert len(options) > 30
    assert {name for name, taken in options.items() if option not in taken} == set(without)


def test_an_empty_database_is_not_current(polarproxy: Command) -> None:
    Path("empty.db").touch()
    done = polarproxy("db", "current", "--db", "sqlite:///empty.db")
    assert (done.code, "schema none" in done.out) == (1, True)


def test_a_sound_database_verifies(polarproxy: Command, db: str) -> None:
    assert polarproxy("db", "verify", "--db", db, "--json").json == {"sessions": 2, "damaged": []}
    assert "nothing is damaged" in polarproxy("db", "verify", "--db", db).out
