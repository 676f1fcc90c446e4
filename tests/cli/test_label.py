"""Labels: given, listed with who and when, taken back; and every view and export goes by them."""

import json
from getpass import getuser
from pathlib import Path

import pytest

from tests.cli.command import Command


def verdict(polarproxy: Command, db: str, *arguments: str) -> dict[str, str]:
    done = polarproxy("calls", "label", "c2", "--db", db, "--json", *arguments)
    assert done.code == 0, done
    found = done.json["verdict"]
    return {"kind": found["kind"], "source": found["source"]}


def test_a_label_counts_everywhere_and_can_be_taken_back(polarproxy: Command, db: str, tmp_path: Path) -> None:
    assert verdict(polarproxy, db) == {"kind": "main", "source": "nothing"}
    given = ("--kind", "title", "--note", "it names the session", "--by", "ann")
    assert verdict(polarproxy, db, *given) == {"kind": "title", "source": "label"}
    assert polarproxy("calls", "show", "c2", "--db", db, "--json").json["kind"]["kind"] == "title"
    shown = polarproxy("sessions", "show", "good", "--db", db, "--json").json
    assert [call["kind"]["kind"] for call in shown["calls"]] == ["main", "title"]
    assert shown["trajectory"]["kinds"] == {"main": 1, "title": 1}
    assert "title" in polarproxy("trajectories", "show", "good", "--db", db).out
    out = tmp_path / "rows.jsonl"
    report = polarproxy("export", "--out", out, "--db", db, "--json").json
    assert report["kinds"] == {"main": 3, "title": 1}
    assert report["left_out"]["calls"]["side_call"] == 1
    assert sorted(len(json.loads(line)["token_ids"]) for line in out.read_text().splitlines()) == [4, 4]
    assert verdict(polarproxy, db, "--undo") == {"kind": "main", "source": "nothing"}
    labels = polarproxy("calls", "label", "c2", "--db", db, "--json").json["labels"]
    assert [(given["kind"], given["by"], given["note"]) for given in labels] == [
        ("title", "ann", "it names the session"),
        (None, getuser(), None),
    ]
    done = polarproxy("calls", "label", "c2", "--db", db)
    assert "it names the session" in done.out
    assert "taken back" in done.out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("c2", "--undo"), "has no label to take back"),
        (("c2", "--undo", "--kind", "title"), "use one of them"),
        (("c2", "--note", "x"), "a note belongs to a label"),
        (("c2", "--kind", "poem"), "poem"),
        (("c9", "--kind", "title"), "there is no call 'c9'"),
    ],
)
def test_wrong_use_is_told_and_changes_nothing(
    polarproxy: Command, db: str, arguments: tuple[str, ...], said: str
) -> None:
    done = polarproxy("calls", "label", *arguments, "--db", db)
    assert done.code == 2
    assert said in done.err
    assert polarproxy("calls", "label", "c2", "--db", db, "--json").json["labels"] == []
