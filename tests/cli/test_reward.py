"""Rewards by hand and from files: appended, all or none, and the history stays."""

import json
from pathlib import Path
from typing import Any

import pytest

from polarproxy.model import Reward
from polarproxy.store.database import open_database
from polarproxy.store.repository import Repository
from tests.cli.command import Command
from tests.store.samples import a_session


def listed(polarproxy: Command, db: str, *options: str) -> list[tuple[str, float]]:
    found = polarproxy("reward", "list", *options, "--db", db, "--json").json
    return [(given["session_id"], given["reward"]["value"]) for given in found]


def written(*lines: dict[str, Any] | str) -> str:
    text = "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines)
    Path("scores.jsonl").write_text(text + "\n")
    return "scores.jsonl"


@pytest.fixture
def named(db: str) -> str:
    """Sessions that have the names by which other programs know them."""
    engine = open_database(db)
    for number in range(3):
        metadata = (("sample", str(number)), ("sample_id", f"nova-{number % 2}"))
        Repository(engine).add_session(a_session(f"s{number}", task_id="t", metadata=metadata))
    engine.dispose()
    return db


def test_a_reward_is_set_with_all_its_parts(polarproxy: Command, db: str) -> None:
    parts = ["--component", "a=1", "--component", "b=-2.5", "--metric", "len=7", "--turn", "0=0.5", "--turn", "c3=-1"]
    done = polarproxy("reward", "set", "bad", "-0.5", *parts, "--db", db)
    assert (done.code, "has reward -0.5" in done.out) == (0, True)
    reward = polarproxy("sessions", "show", "bad", "--db", db, "--json").json["session"]["reward"]
    assert reward == {
        "value": -0.5,
        "components": [
            {"name": "a", "value": 1.0, "kind": "Reward"},
            {"name": "b", "value": -2.5, "kind": "Reward"},
            {"name": "len", "value": 7.0, "kind": "Metric"},
        ],
        "turns": [{"value": 0.5, "call_id": None, "turn": 0}, {"value": -1.0, "call_id": "c3", "turn": None}],
        "spec": None,
    }


def test_a_correction_leaves_the_history(polarproxy: Command, db: str) -> None:
    polarproxy("reward", "set", "good", "0.5", "--metric", "len=7", "--turn", "1=0.25", "--db", db)
    assert listed(polarproxy, db, "good") == [("good", 1.0), ("good", 0.5)]
    assert listed(polarproxy, db) == [("bad", 0.0), ("good", 0.5)]
    assert polarproxy("reward", "list", "--group", "nobody", "--db", db).code == 2
    shown = polarproxy("reward", "list", "good", "--db", db).out.splitlines()
    assert ["no" in line for line in shown if "good" in line] == [True, False]
    assert any("len 7 (metric)" in line and "turn 1 0.25" in line for line in shown)


@pytest.mark.parametrize(
    "options",
    [
        ["nobody", "1"],
        ["bad", "nan"],
        ["bad", "1", "--component", "a"],
        ["bad", "1e39"],
        ["bad", "-1e39"],
        ["bad", "1", "--component", "a=1e39"],
        ["bad", "1", "--turn", "0=1e39"],
        ["bad", "1", "--turn", "-1=2"],
        ["bad", "1", "--turn", "99999999999999999999=1"],
        ["bad", "1", "--turn", f"{'9' * 5000}=1"],
        ["bad", "1", "--turn", "c1=1"],
    ],
    ids=str,
)
def test_what_is_no_reward_is_wrong_use(polarproxy: Command, db: str, options: list[str]) -> None:
    assert polarproxy("reward", "set", *options, "--db", db).code == 2
    assert listed(polarproxy, db, "bad") == [("bad", 0.0)]


def test_a_file_is_imported_by_every_name(polarproxy: Command, named: str) -> None:
    metrics = [{"name": "tests", "value": 1, "type": "Reward"}]
    file = written(
        {"session_id": "s0", "aggregate_reward_score": 0.5, "turn_rewards": [{"turn": 0, "value": 0.25}]},
        {"task_id": "t", "sample": 1, "aggregate_score": -1},
        "",
        {"id": "nova-1", "aggregate_reward_score": 0.75, "metrics_list": metrics},
        {"id": "good", "aggregate_score": 0},
    )
    done = polarproxy("reward", "import", file, "--db", named)
    assert (done.code, "4 rewards of 3 sessions imported" in done.out) == (0, True)
    assert listed(polarproxy, named, "s1") == [("s1", -1.0), ("s1", 0.75)]
    assert listed(polarproxy, named, "s0") == [("s0", 0.5)]
    assert listed(polarproxy, named, "good") == [("good", 1.0), ("good", 0.0)]


WRONG = [
    ({"session_id": "nobody", "aggregate_score": 1}, "there is no such session"),
    ({"task_id": "t", "sample": 9, "aggregate_score": 1}, "there is no such session"),
    ({"id": "nova-0", "aggregate_score": 1}, "there are 2 such sessions"),
    ({"aggregate_score": 1}, "it names no session"),
    ({"session_id": "s1"}, "neither aggregate_reward_score nor aggregate_score"),
    ({"session_id": "s1", "aggregate_score": True}, "it is not a reward"),
    ({"session_id": "s1", "aggregate_score": 1, "metric_list": []}, "unknown field `metric_list`"),
    ('{"session_id": "s1", "aggregate_score": 1e999}', "it is not a reward"),
    ('{"session_id": "s1", "aggregate_score": NaN}', "it is not a reward"),
    ('{"session_id": "s1", "aggregate_score": 1', "it is not a reward"),
    ("[" * 100_000, "it is not a reward"),
]


@pytest.mark.parametrize(("line", "why"), WRONG, ids=[why for _, why in WRONG])
def test_one_bad_line_and_nothing_is_imported(
    polarproxy: Command, named: str, line: dict[str, Any] | str, why: str
) -> None:
    file = written({"session_id": "s0", "aggregate_score": 1}, "", line)
    done = polarproxy("reward", "import", file, "--db", named, "--json")
    assert done.code == 1
    (wrong,) = done.json["wrong"]
    assert (wrong["line"], why in wrong["error"]) == (3, True), wrong
    assert (done.json["read"], done.json["appended"]) == (1, 0)
    assert listed(polarproxy, named, "s0") == []
    shown = polarproxy("reward", "import", file, "--db", named)
    assert (shown.code, "line 3: " in shown.out, "nothing was imported: 1 of 2" in shown.out) == (1, True, True)


def test_all_bad_lines_are_counted(polarproxy: Command, named: str) -> None:
    done = polarproxy("reward", "import", written(*["{}"] * 30), "--db", named)
    assert (done.code, done.out.count("line "), "… and 10 more" in done.out) == (1, 20, True)


def test_a_file_can_be_only_checked(polarproxy: Command, named: str) -> None:
    file = written({"session_id": "s0", "aggregate_score": 1})
    done = polarproxy("reward", "import", file, "--dry-run", "--db", named)
    assert (done.code, "can be imported" in done.out) == (0, True)
    assert listed(polarproxy, named, "s0") == []


def test_a_file_that_is_not_there_is_wrong_use(polarproxy: Command, db: str) -> None:
    assert polarproxy("reward", "import", "nothing.jsonl", "--db", db).code == 2


def test_an_imported_reward_is_what_was_written(polarproxy: Command, named: str) -> None:
    polarproxy("reward", "import", written({"session_id": "s0", "aggregate_score": 0.1}), "--db", named)
    engine = open_database(named)
    assert Repository(engine).session("s0").reward == Reward(0.1)
    engine.dispose()


@pytest.mark.parametrize(
    ("turn", "why"),
    [
        ({"turn": 99999999999999999999, "value": 1}, ""),
        ({"turn": 2**31, "value": 1}, "no session has so many turns"),
        ({"turn": -1, "value": 1}, "turns are counted from 0"),
        ({"call_id": "typo", "value": 1}, "session s1 has no call 'typo'"),
    ],
    ids=str,
)
def test_a_reward_of_a_turn_that_cannot_be_is_a_wrong_line(
    polarproxy: Command, named: str, turn: dict[str, Any], why: str
) -> None:
    file = written({"session_id": "s1", "aggregate_score": 1, "turn_rewards": [turn]})
    done = polarproxy("reward", "import", file, "--db", named, "--json")
    assert (done.code, done.json["appended"]) == (1, 0)
    assert why in done.json["wrong"][0]["error"]


def test_a_turn_that_is_not_there_is_warned_of(polarproxy: Command, db: str) -> None:
    """It may be that of a call which is still to come, so it is stored."""
    done = polarproxy("reward", "set", "good", "1", "--turn", "99=1", "--turn", "1=0.5", "--db", db)
    assert done.code == 0
    assert "session good has trained turns 0 to 1 so far" in done.err
    assert "the reward of turn 99 counts for nothing" in done.err
    told = polarproxy("reward", "set", "bad", "1", "--turn", "1=1", "--db", db, "--json").json
    assert (told["session_id"], told["reward"]) == ("bad", 1.0)
    assert "one trained turn, turn 0" in told["warnings"][0]
    assert polarproxy("reward", "set", "good", "1", "--turn", "1=0.5", "--db", db).err == ""


def test_lines_whose_turns_are_not_there_are_imported_with_a_warning(polarproxy: Command, db: str) -> None:
    lines = [
        {"session_id": name, "aggregate_score": 1, "turn_rewards": [{"turn": turn, "value": 1}]}
        for name, turn in (("good", 1), ("good", 2))
    ]
    done = polarproxy("reward", "import", written(*lines), "--db", db)
    assert (done.code, done.err.count("line 2: session good has trained turns 0 to 1")) == (0, 1)
    assert "line 1" not in done.err
    told = polarproxy("reward", "import", written(*lines), "--db", db, "--json").json
    assert (told["appended"], [warning["line"] for warning in told["warnings"]]) == (2, [2])


def test_numbers_that_are_only_watched_may_be_large(polarproxy: Command, db: str) -> None:
    assert polarproxy("reward", "set", "bad", "3e38", "--metric", "ns=1e39", "--db", db).code == 0
    lines = [{"session_id": "bad", "aggregate_score": 4e38}]
    done = polarproxy("reward", "import", written(*lines), "--db", db)
    assert (done.code, "too large" in done.out) == (1, True)


def test_a_reward_from_before_can_be_read(polarproxy: Command, db: str) -> None:
    engine = open_database(db)
    Repository(engine).add_reward("bad", Reward(1e39))
    engine.dispose()
    assert listed(polarproxy, db, "bad")[-1] == ("bad", 1e39)
