"""An export of several files: whole or not at all, and one that was broken off goes on."""

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from polarproxy.errors import BadExport, StoreDamaged
from polarproxy.export.collect import Collection
from polarproxy.export.crediting import unwatched
from polarproxy.export.files import format_named
from polarproxy.export.format import Context, Format, Taken
from polarproxy.export.options import Options
from polarproxy.export.plan import Layout, read_splits
from polarproxy.export.running import Job, Outcome, run
from polarproxy.export.texts.options import TextOptions
from polarproxy.model import CallKind, Label, Reward, Session
from polarproxy.store.repository import Repository
from tests.trajectory.build import WHEN

SHARDS = 4
SECONDS = 60
JSONL = format_named("jsonl")


def job(folder: Path, kind: Format = JSONL, layout: Layout | None = None) -> Job:
    return Job(folder / "rows.jsonl", kind, layout=layout or Layout(shards=SHARDS))


def export(store: Repository, wanted: Job, options: Options | None = None) -> Outcome:
    return run(Collection(store, options or Options()), wanted, unwatched)


def content(folder: Path) -> dict[str, bytes]:
    return {entry.name: entry.read_bytes() for entry in sorted(folder.iterdir()) if entry.is_file()}


def breaking(after: int) -> Format:
    """JSON lines that break off in the file after so many."""
    written: list[Path] = []

    def write(path: Path, sessions: Iterable[Taken], context: Context) -> None:
        if len(written) == after:
            next(iter(sessions))
            path.write_bytes(b"half")
            raise StoreDamaged("call c7 does not match its digest")
        written.append(path)
        JSONL.write(path, sessions, context)

    return replace(JSONL, write=write)


def broken_off(store: Repository, folder: Path, after: int) -> Path:
    """An export that broke off after so many files; returns where they lie."""
    with pytest.raises(StoreDamaged):
        export(store, job(folder, breaking(after)))
    return folder / ".rows.jsonl.unfinished"


def test_files_and_their_report(store: Repository, folder: Path) -> None:
    outcome = export(store, job(folder))
    names = [f"rows-0000{place}-of-00004.jsonl" for place in range(SHARDS)]
    assert list(content(folder)) == [*names, "rows.jsonl.report.json"]
    assert [entry.name for entry in folder.iterdir() if entry.is_dir()] == []
    report = json.loads((folder / "rows.jsonl.report.json").read_bytes())
    assert [(one["name"], one["sessions"], one["rows"]) for one in report["files"]] == [(name, 2, 2) for name in names]
    assert all(one["bytes"] == (folder / one["name"]).stat().st_size for one in report["files"])
    assert (report["rows"], report["sessions"], report["layout"]["shards"]) == (8, 8, 4)
    assert (outcome.kept, outcome.anew) == (0, None)


def test_shards_together_are_the_rows_and_the_report_of_one_file(store: Repository, folder: Path) -> None:
    export(store, job(folder))
    (folder / "one").mkdir()
    export(store, job(folder / "one", layout=Layout()))
    parts = b"".join(found for name, found in content(folder).items() if name.startswith("rows-"))
    assert parts == (folder / "one" / "rows.jsonl").read_bytes()
    told = [json.loads((folder / where / "rows.jsonl.report.json").read_bytes()) for where in ("", "one")]
    for one in told:
        del one["files"], one["layout"]
    assert told[0] == told[1]


def test_an_export_that_broke_off_goes_on_and_is_the_same(store: Repository, folder: Path) -> None:
    export(store, job(folder))
    whole = content(folder)
    (folder / "later").mkdir()
    left = broken_off(store, folder / "later", 2)
    assert content(folder / "later") == {}
    assert sorted(entry.name for entry in left.glob("*.done")) == [
        f"rows-0000{place}-of-00004.jsonl.done" for place in (0, 1)
    ]
    seen = []

    def counted(sessions: Iterable[Session], count: int) -> Iterator[Session]:
        for session in sessions:
            seen.append((session.session_id, count))
            yield session

    outcome = run(Collection(store, Options()), job(folder / "later"), counted)
    assert (outcome.kept, outcome.anew) == (2, None)
    assert seen == [(f"s{place}", 4) for place in (4, 5, 6, 7)]
    assert content(folder / "later") == whole
    assert not left.exists()


def test_an_export_of_which_nothing_is_done_leaves_nothing(store: Repository, folder: Path) -> None:
    assert not broken_off(store, folder, 0).exists()
    assert list(folder.iterdir()) == []


def test_a_file_that_was_changed_is_written_again(store: Repository, folder: Path) -> None:
    left = broken_off(store, folder, 3)
    changed = left / "rows-00001-of-00004.jsonl"
    # Of the same size.
    changed.write_bytes(changed.read_bytes().replace(b"[", b"{", 1))
    (left / "rows-00002-of-00004.jsonl.done").write_bytes(b"\xc1")
    assert export(store, job(folder)).kept == 1
    lines = (folder / "rows-00001-of-00004.jsonl").read_bytes().splitlines()
    assert [json.loads(line)["session_id"] for line in lines] == ["s2", "s3"]


@pytest.mark.parametrize(
    ("what", "said"),
    [("options", "its options were others"), ("store", "the store has changed"), ("plan", "its plan cannot be read")],
)
def test_another_export_starts_anew_and_says_why(store: Repository, folder: Path, what: str, said: str) -> None:
    left = broken_off(store, folder, 2)
    options = Options(advantage="rloo") if what == "options" else Options()
    if what == "store":
        store.add_label("s0-1", Label(CallKind.TITLE, "me", WHEN))
    if what == "plan":
        (left / "plan.json").write_bytes(b"{")
    outcome = export(store, job(folder), options)
    assert (outcome.kept, outcome.anew is not None and said in outcome.anew) == (0, True)
    assert not left.exists()


@pytest.mark.parametrize("name", ["kind", "form", "layout", "texts"])
def test_another_job_starts_anew(store: Repository, folder: Path, name: str) -> None:
    broken_off(store, folder, 2)
    others: dict[str, Any] = {
        "kind": replace(JSONL, name="other"),
        "form": "other",
        "layout": Layout(shards=SHARDS, shuffle=1),
        "texts": TextOptions(dedup=True),
    }
    outcome = run(Collection(store, Options()), replace(job(folder), **{name: others[name]}), unwatched)
    assert (outcome.kept, outcome.anew) == (0, "its options were others")


def test_a_reward_that_was_set_since_starts_it_anew(store: Repository, folder: Path) -> None:
    broken_off(store, folder, 2)
    store.add_reward("s0", Reward(0.25))
    assert export(store, job(folder)).anew == "the store has changed since"


def test_an_export_that_was_killed_while_files_moved_goes_on(store: Repository, folder: Path) -> None:
    left = broken_off(store, folder, 3)
    (left / "rows-00000-of-00004.jsonl").rename(folder / "rows-00000-of-00004.jsonl")
    assert export(store, job(folder)).kept == 3
    assert len(content(folder)) == SHARDS + 1


def test_two_at_once_do_not_disturb_each_other(store: Repository, folder: Path) -> None:
    def write(path: Path, sessions: Iterable[Taken], context: Context) -> None:
        with pytest.raises(BadExport, match="another export is writing these files"):
            export(store, job(folder))
        JSONL.write(path, sessions, context)

    export(store, job(folder, replace(JSONL, write=write)))
    assert len(content(folder)) == SHARDS + 1


def test_files_in_the_way_are_said_before_anything_is_done(store: Repository, folder: Path) -> None:
    os.mkfifo(folder / "rows-00002-of-00004.jsonl")
    with pytest.raises(BadExport, match="no regular file"):
        export(store, job(folder))
    assert [entry.name for entry in folder.iterdir()] == ["rows-00002-of-00004.jsonl"]


def test_a_folder_that_is_missing_is_said(store: Repository, tmp_path: Path) -> None:
    with pytest.raises(BadExport, match="cannot be made: No such file"):
        export(store, job(tmp_path / "nowhere"))


def test_tasks_are_split(store: Repository, folder: Path) -> None:
    export(store, job(folder, layout=Layout(read_splits("train=0.75,val=0.25"))))
    train, val = ((folder / f"rows.{name}.jsonl").read_text().splitlines() for name in ("train", "val"))
    tasks = [{json.loads(line)["task_id"] for line in lines} for lines in (train, val)]
    assert len(train) + len(val) == 8
    assert tasks[0].isdisjoint(tasks[1])


def test_long_rows_are_cut_and_counted(store: Repository, folder: Path) -> None:
    outcome = export(store, job(folder), Options(max_tokens=4))
    rows = [json.loads(line) for name, text in content(folder).items() if "-of-" in name for line in text.splitlines()]
    assert {len(row["token_ids"]) for row in rows} == {4}
    account = outcome.account
    assert (account.cut_rows, account.cut_tokens, account.cut_trained_tokens, account.rows) == (8, 8, 8, 8)
    assert (account.captured_tokens, account.trained_tokens) == (24, 16)
    report = json.loads((folder / "rows.jsonl.report.json").read_bytes())
    assert report["cut"] == {
        "max_tokens": 4,
        "rows": 8,
        "tokens": 8,
        "trained_tokens": 8,
        "rows_without_training": 0,
    }
