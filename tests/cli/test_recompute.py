"""Old sessions judged again: what was said is read, rewards that come out differently are appended."""

import json
import sys
from pathlib import Path

import pytest

from tests.cli.command import Command

CORRECT = """
[reward]
[[reward.components]]
name = "said"
judge = "regex"
weight = 2.0
options = { pattern = "!$" }
"""


def written(text: str, name: str = "spec.toml") -> str:
    Path(name).write_text(text)
    return name


def test_sessions_are_judged_by_what_was_said(polarproxy: Command, db: str) -> None:
    """`good` ends with "Hel!", `bad` too (its second call was aborted, and is not trained)."""
    done = polarproxy("reward", "recompute", "--reward", written(CORRECT), "--all", "--db", db, "--json")
    assert done.code == 0
    found = {one["session_id"]: one for one in done.json["sessions"]}
    assert {name: (one["state"], one["was"], one["is"]) for name, one in found.items()} == {
        "good": ("new", 1.0, 2.0),
        "bad": ("new", 0.0, 2.0),
    }
    reward = polarproxy("sessions", "show", "good", "--db", db, "--json").json["session"]["reward"]
    assert (reward["value"], reward["spec"]) == (2.0, done.json["spec"])
    assert len(polarproxy("reward", "list", "good", "--db", db, "--json").json) == 2
    again = polarproxy("reward", "recompute", "--reward", "spec.toml", "--all", "--db", db)
    assert (again.code, "0 rewards appended" in again.out, "unchanged" in again.out) == (0, True, True)
    report = polarproxy("export", "--out", "rows.jsonl", "--db", db, "--json").json
    assert report["reward_version"]["specs"] == {done.json["spec"]: 2}


def test_a_dry_run_appends_nothing(polarproxy: Command, db: str) -> None:
    done = polarproxy("reward", "recompute", "--reward", written(CORRECT), "--session", "good", "--dry-run", "--db", db)
    assert (done.code, "1 reward would be appended" in done.out) == (0, True)
    assert len(polarproxy("reward", "list", "good", "--db", db, "--json").json) == 1


def test_new_weights_for_components_that_are_stored(polarproxy: Command, db: str) -> None:
    """The table of polarproxy.toml is the default; `bad` has no such component and keeps its reward."""
    written('[reward]\ncomponents = [{ name = "tests", weight = 0.25 }]\n', "polarproxy.toml")
    done = polarproxy("reward", "recompute", "--group", "g", "--db", db, "--json")
    states = {one["session_id"]: (one["state"], one["is"]) for one in done.json["sessions"]}
    assert states == {"good": ("new", 0.25), "bad": ("nothing to judge", None)}
    assert polarproxy("reward", "list", "bad", "--db", db, "--json").json[-1]["reward"]["value"] == 0.0


def test_a_judge_that_fails_on_one_session_does_not_end_the_others(polarproxy: Command, db: str) -> None:
    program = (
        "import json, sys; told = json.load(sys.stdin); told['session']['session_id'] == 'bad' and sys.exit('oh');"
    )
    program += "print(json.dumps({'nonce': told['nonce'], 'value': 0.5}))"
    table = f'[reward]\n[[reward.components]]\nname = "x"\ncommand = {json.dumps([sys.executable, "-c", program])}\n'
    done = polarproxy("reward", "recompute", "--reward", written(table), "--all", "--db", db, "--json")
    assert done.code == 1
    found = {one["session_id"]: one for one in done.json["sessions"]}
    assert (found["good"]["state"], found["good"]["is"], found["bad"]["state"]) == ("new", 0.5, "failed")
    assert "oh" in found["bad"]["error"]
    assert len(polarproxy("reward", "list", "bad", "--db", db, "--json").json) == 1


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--reward", "spec.toml"], "say which sessions"),
        (["--all"], "there is no polarproxy.toml"),
        (["--reward", "none.toml", "--all"], "there is no none.toml"),
        (["--reward", "empty.toml", "--all"], "has no [reward] table"),
        (["--reward", "odd.toml", "--all"], "did you mean 'components'"),
        (["--reward", "broken.toml", "--all"], "is not TOML"),
        (["--reward", "spec.toml", "--group", "nobody"], "no session has the group 'nobody'"),
        (["--reward", "none_named.toml", "--all"], "python is module:function"),
        (["--reward", "raises.toml", "--all"], "importing raises_at_import raised RuntimeError: boom"),
        (["--reward", "spec.toml", "--session", "nobody"], "there is no session 'nobody'"),
    ],
)
def test_what_makes_no_sense_is_wrong_use(polarproxy: Command, db: str, options: list[str], why: str) -> None:
    for name, text in (("spec", CORRECT), ("empty", ""), ("odd", "[reward]\ncomponent = []"), ("broken", "[")):
        written(text, f"{name}.toml")
    for name, function in (("none_named", ":f"), ("raises", "raises_at_import:f")):
        written(f'[reward]\n[[reward.components]]\nname = "x"\npython = "{function}"\n', f"{name}.toml")
    written('raise RuntimeError("boom")', "raises_at_import.py")
    done = polarproxy("reward", "recompute", *options, "--db", db)
    assert (done.code, why in done.err) == (2, True), done.err


def test_the_table_is_no_setting(polarproxy: Command, db: str) -> None:
    written(CORRECT, "polarproxy.toml")
    assert polarproxy("db", "upgrade", "--db", "sqlite:///polar.db").code == 0
    assert polarproxy("sessions", "list").code == 0


def test_a_judge_that_would_end_the_program_has_failed(polarproxy: Command, db: str) -> None:
    written("def f(session, said): raise SystemExit(0)", "ending_judge.py")
    table = '[reward]\n[[reward.components]]\nname = "x"\npython = "ending_judge:f"\n'
    done = polarproxy("reward", "recompute", "--reward", written(table), "--all", "--db", db, "--json")
    assert (done.code, [one["state"] for one in done.json["sessions"]]) == (1, ["failed", "failed"])


def test_a_penalty_counts_negatively_in_gdpo(polarproxy: Command, db: str) -> None:
    table = """
    [[reward.components]]
    name = "long"
    judge = "length"
    role = "penalty"
    options = { free = 0, most = 10 }
    """
    polarproxy("reward", "recompute", "--reward", written(table), "--all", "--db", db)
    polarproxy("export", "--out", "rows.jsonl", "--advantage", "gdpo", "--db", db)
    rows = [json.loads(line) for line in Path("rows.jsonl").read_text().splitlines()]
    assert {row["session_id"]: max(row["advantages"], key=abs) > 0 for row in rows} == {"good": False, "bad": True}
    assert rows[0]["components"][0]["kind"] == "Penalty"


def test_components_that_the_specification_does_not_name_are_kept(polarproxy: Command, db: str) -> None:
    """And can be given a weight again later."""

    def components() -> list[tuple[str, float, str]]:
        reward = polarproxy("sessions", "show", "good", "--db", db, "--json").json["session"]["reward"]
        return [(part["name"], part["value"], part["kind"]) for part in reward["components"]]

    recompute = ("reward", "recompute", "--session", "good", "--db", db, "--reward")
    polarproxy(*recompute, written(CORRECT))
    assert components() == [("said", 1.0, "Reward"), ("tests", 1.0, "Metric")]
    assert "0 rewards appended" in polarproxy(*recompute, "spec.toml").out
    polarproxy(*recompute, written('[reward]\n[[reward.components]]\nname = "tests"\n', "back.toml"))
    assert components() == [("tests", 1.0, "Reward"), ("said", 1.0, "Metric")]
