"""`polarproxy export`: what is of it, in which files, and what it says."""

import json
from pathlib import Path

import pytest

from polarproxy.export.files import FORMATS
from tests.cli.command import Command


def rows(pattern: str) -> dict[str, list[str]]:
    """The sessions of the rows in each file."""
    return {
        path.name: [json.loads(line)["session_id"] for line in path.read_text().splitlines()]
        for path in sorted(Path().glob(pattern))
    }


def test_every_format_is_in_the_help(polarproxy: Command) -> None:
    told = "".join(polarproxy("export", "--help").out.split())
    for one in FORMATS:
        assert one.name in told


def test_formats_are_listed_with_what_they_are(polarproxy: Command) -> None:
    done = polarproxy("export", "--formats")
    assert done.code == 0
    for one in FORMATS:
        assert one.name in done.out
        assert one.about in done.out


def test_without_a_name_the_format_gives_it(polarproxy: Command, db: str) -> None:
    assert polarproxy("export", "--format", "arrow", "--db", db).code == 0
    assert Path("samples.arrow").stat().st_size > 0
    assert polarproxy("export", "--db", db).code == 0
    assert Path("samples.parquet").stat().st_size > 0


def test_sessions_are_chosen(polarproxy: Command, db: str) -> None:
    done = polarproxy(
        "export", "--out", "a.jsonl", "--where", "harness=h", "--where", "reward>=1", "--db", db, "--json"
    )
    assert (done.code, done.json["rows"], done.json["where"]) == (0, 1, "harness=h reward>=1")
    assert rows("a.jsonl") == {"a.jsonl": ["good"]}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--where", "harnes=h"], "did you mean harness?"),
        (["--where", "harness=x"], "no session has the harness x; there are: h"),
        (["--format", "parqet"], "did you mean parquet?"),
        (["--form", "packed"], "leave --form out"),
        (["--out", ""], "names no file"),
        (["--out", "/"], "names no file"),
        (["--split", "train=0.5,val=0.5"], "each of its 2 parts, and there are 1"),
        (["--split", "train=0.5"], "must add up to 1"),
        (["--shards", "0"], "--shards"),
        (["--max-tokens", "0"], "--max-tokens"),
    ],
    ids=str,
)
def test_what_cannot_be_is_wrong_use(polarproxy: Command, db: str, options: list[str], said: str) -> None:
    done = polarproxy("export", "--out", "a.jsonl", *options, "--db", db)
    assert (done.code, said in done.err) == (2, True)
    assert [entry.name for entry in Path().iterdir() if "a." in entry.name] == []


def test_shards_and_what_they_hold(polarproxy: Command, db: str) -> None:
    polarproxy("reward", "set", "good", "1", "--db", db)
    done = polarproxy("export", "--out", "a.jsonl", "--shards", "3", "--shuffle", "7", "--db", db)
    # One group: it is never cut.
    assert (done.code, "a-00000-of-00001.jsonl" in done.out) == (0, True)
    assert sorted(rows("a-*.jsonl")["a-00000-of-00001.jsonl"]) == ["bad", "good"]


def test_rows_that_are_cut_are_told(polarproxy: Command, db: str) -> None:
    done = polarproxy("export", "--out", "a.jsonl", "--max-tokens", "4", "--db", db)
    assert (done.code, "rows cut at --max-tokens" in done.out) == (0, True)
    assert "1, 3 tokens off, 2 of them trained" in done.out
