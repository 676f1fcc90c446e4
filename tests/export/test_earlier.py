"""An export takes the place of the one before to the same name: no old shard is left to be trained beside the new ones."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from polarproxy.export.files import format_named
from polarproxy.export.plan import Layout, read_splits
from polarproxy.store.repository import Repository
from tests.export.test_running import broken_off, content, export, job


def names(folder: Path) -> list[str]:
    return [name for name in content(folder) if not name.endswith(".report.json")]


@pytest.mark.parametrize("after", [Layout(shards=2), Layout(), Layout(read_splits("train=0.5,val=0.5"), shards=2)])
def test_shards_of_the_export_before_are_gone(store: Repository, folder: Path, after: Layout) -> None:
    export(store, job(folder))
    before = names(folder)
    outcome = export(store, job(folder, layout=after))
    assert names(folder) == sorted(file.name for file in outcome.files)
    assert list(outcome.deleted) == before
    assert outcome.beside == ()
    again = export(store, job(folder))
    assert (names(folder), again.beside) == (before, ())


def test_nothing_is_deleted_that_is_not_as_the_export_wrote_it(store: Repository, folder: Path) -> None:
    export(store, job(folder))
    changed, linked, foreign = (folder / f"rows-0000{place}-of-00004.jsonl" for place in (0, 1, 9))
    changed.write_bytes(changed.read_bytes().replace(b"[", b"{", 1))
    linked.rename(folder / "kept")
    linked.symlink_to(folder / "kept")
    foreign.write_bytes(b"mine")
    (folder / "rows-00000-of-00004.json").write_bytes(b"of another format")
    outcome = export(store, job(folder, layout=Layout(shards=2)))
    assert outcome.deleted == ("rows-00002-of-00004.jsonl", "rows-00003-of-00004.jsonl")
    assert outcome.beside == (changed.name, linked.name, foreign.name)
    assert (folder / "kept").exists()


@pytest.mark.parametrize("report", ["", "[]", '{"files": [{"name": 1}]}', "\x00"])
def test_a_report_that_is_none_deletes_nothing(store: Repository, folder: Path, report: str) -> None:
    export(store, job(folder))
    (folder / "rows.jsonl.report.json").write_text(report)
    outcome = export(store, job(folder, layout=Layout(shards=2)))
    assert (len(outcome.deleted), len(outcome.beside)) == (0, 4)


def test_a_report_names_files_of_its_own_folder_only(store: Repository, folder: Path, tmp_path: Path) -> None:
    export(store, job(folder))
    path = folder / "rows.jsonl.report.json"
    told = json.loads(path.read_bytes())
    outside = tmp_path / "outside.jsonl"
    (folder / told["files"][0]["name"]).rename(outside)
    told["files"][0]["name"] = f"../{outside.name}"
    told["files"][1]["name"] = str(outside)
    path.write_text(json.dumps(told))
    export(store, job(folder, layout=Layout()))
    assert outside.exists()


def test_an_export_that_fails_leaves_the_one_before(store: Repository, folder: Path) -> None:
    export(store, job(folder))
    before = content(folder)
    (folder / "two").mkdir()
    broken_off(store, folder / "two", 1)
    broken_off(store, folder, 1)
    assert content(folder) == before


def test_a_single_file_that_was_killed_is_begun_again_and_says_so(store: Repository, folder: Path) -> None:
    with subprocess.Popen(["true"]) as gone:
        gone.wait()
    (folder / f".rows.jsonl.{gone.pid}.tmp").write_bytes(b"half")
    outcome = export(store, job(folder, layout=Layout()))
    assert outcome.anew == "a single file is written in one go; of several (--shards) those that are finished are kept"
    assert export(store, job(folder, format_named("jsonl"), Layout())).anew is None, "it is whole now"
    os.utime(folder / "rows.jsonl", (0, 0))
    assert export(store, job(folder, layout=Layout())).anew is not None, "one that was killed after it"
