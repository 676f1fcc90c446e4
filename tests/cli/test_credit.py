"""`credit report`: as tables, as JSON, and drawn."""

import importlib.util
import sys
from pathlib import Path

import pytest

from tests.cli.command import Command

needs_matplotlib = pytest.mark.skipif(
    importlib.util.find_spec("matplotlib") is None, reason="needs matplotlib: pip install 'polarproxy[plots]'"
)


def test_a_report(polarproxy: Command, db: str) -> None:
    done = polarproxy("credit", "report", "--db", db, "--json")
    assert done.code == 0
    (group,) = done.json["groups"]
    assert (group["group_id"], group["scored"], group["mean"], group["flat"]) == ("g", 2, 0.5, False)
    assert [one["name"] for one in done.json["components"]] == ["tests"]
    shown = polarproxy("credit", "report", "--db", db)
    assert (shown.code, "1 group" in shown.out, "no sign of collapse" in shown.out) == (0, True, True)


def test_a_collapse_is_something_wrong(polarproxy: Command, db: str) -> None:
    polarproxy("reward", "set", "bad", "1", "--db", db)
    done = polarproxy("credit", "report", "--db", db)
    assert (done.code, "1 of 1 groups have no spread" in done.out) == (1, True)
    assert polarproxy("credit", "report", "--db", db, "--json").json["flat_groups"] == ["g"]


def test_every_export_says_so_too(polarproxy: Command, db: str) -> None:
    polarproxy("reward", "set", "bad", "1", "--db", db)
    done = polarproxy("export", "--out", "rows.jsonl", "--db", db, "--json")
    assert done.json["collapse"]["signs"] == ["1 of 1 groups have no spread in their rewards and teach nothing"]
    assert "1 of 1 groups have no spread" in polarproxy("export", "--out", "rows.jsonl", "--db", db).out


@needs_matplotlib
def test_it_is_drawn(polarproxy: Command, db: str) -> None:
    done = polarproxy("credit", "report", "--plots", "plots/new", "--db", db)
    assert done.code == 0
    for name in ("groups", "components", "trends"):
        assert Path(f"plots/new/{name}.png").read_bytes().startswith(b"\x89PNG")
    Path("taken").touch()
    done = polarproxy("credit", "report", "--plots", "taken/plots", "--db", db)
    assert (done.code, "cannot be written" in done.err) == (2, True)


def test_without_matplotlib_it_is_said_how_to_get_it(
    polarproxy: Command, db: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    done = polarproxy("credit", "report", "--plots", "plots", "--db", db)
    assert (done.code, "pip install 'polarproxy[plots]'" in done.err) == (2, True)


@pytest.mark.parametrize("command", [("credit", "report"), ("reward", "list"), ("reward", "recompute"), ("export",)])
def test_a_group_that_is_none_is_answered_with_near_ones(
    polarproxy: Command, db: str, command: tuple[str, ...]
) -> None:
    if command[-1] == "recompute":
        Path("polarproxy.toml").write_text('[[reward.components]]\nname = "tests"\n')
    done = polarproxy(*command, "--group", "gg", "--db", db)
    assert (done.code, "no session has the group 'gg'; did you mean 'g'?" in done.err) == (2, True)
    assert "`polarproxy sessions list` shows them" in polarproxy(*command, "--group", "typo", "--db", db).err
