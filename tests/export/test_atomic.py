"""A file is there whole, or not at all, and nothing is left lying about."""

import os
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from polarproxy.errors import BadExport, StoreDamaged
from polarproxy.export.atomic import whole_file


def write(path: Path, failure: BaseException | None = None) -> None:
    with whole_file(path) as temporary:
        temporary.write_bytes(b"half")
        if failure is not None:
            raise failure


def test_a_file_appears_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    with whole_file(path) as temporary:
        temporary.write_bytes(b"new")
        assert not path.exists()
        assert temporary.parent == tmp_path
    assert [entry.name for entry in tmp_path.iterdir()] == ["rows.jsonl"]
    assert path.read_bytes() == b"new"


def test_an_older_file_is_replaced_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b"old")
    with whole_file(path) as temporary:
        temporary.write_bytes(b"new")
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"new"


@pytest.mark.parametrize("error", [StoreDamaged("row 7"), KeyboardInterrupt(), ValueError("x")])
def test_on_failure_nothing_appears_and_nothing_changes(tmp_path: Path, error: BaseException) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b"old")
    with pytest.raises(type(error)):
        write(path, error)
    assert [(entry.name, entry.read_bytes()) for entry in tmp_path.iterdir()] == [("rows.jsonl", b"old")]


def test_a_full_disk_is_said_in_words(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    with pytest.raises(BadExport, match=r"rows\.jsonl cannot be written: No space left"):
        write(path, OSError(28, "No space left on device"))
    assert list(tmp_path.iterdir()) == []


def test_a_database_is_not_written_over(tmp_path: Path) -> None:
    """`--out` and `--db` are easily confused, and a store is there once."""
    path = tmp_path / "polar.db"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE calls (id INTEGER)")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(BadExport, match=r"polar\.db cannot be written: it is a SQLite database"):
        write(path)
    assert [(entry.name, entry.read_bytes()) for entry in tmp_path.iterdir()] == [("polar.db", before)]


def test_a_block_that_writes_nothing_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(BadExport, match="cannot be written"), whole_file(tmp_path / "rows.jsonl"):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(BadExport, match="cannot be written: No such file"):
        write(tmp_path / "missing" / "rows.jsonl")
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(BadExport, match="cannot be written: Not a directory"):
        write(tmp_path / "file" / "rows.jsonl")


def test_a_folder_in_its_place(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl" / "inside").mkdir(parents=True)
    with pytest.raises(BadExport, match="cannot be written"):
        write(tmp_path / "rows.jsonl")
    assert [entry.name for entry in tmp_path.iterdir()] == ["rows.jsonl"]


def test_what_is_no_regular_file_is_not_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "rows.jsonl")
    with pytest.raises(BadExport, match="no regular file"):
        write(tmp_path / "rows.jsonl")
    assert (tmp_path / "rows.jsonl").is_fifo()
    assert [entry.name for entry in tmp_path.iterdir()] == ["rows.jsonl"]


def ended() -> int:
    """The number of a process that is over."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait(timeout=60)
    return process.pid


def left(folder: Path, name: str, process: object, age: float) -> Path:
    path = folder / f".{name}.{process}.tmp"
    path.write_bytes(b"half")
    then = time.time() - age
    os.utime(path, (then, then))
    return path


def test_what_a_killed_process_left_is_deleted(tmp_path: Path) -> None:
    """Not what is younger, is written by somebody who lives, belongs to another file, or is none of ours."""
    gone = ended()
    old = left(tmp_path, "[x]*.jsonl", gone, 3600)
    kept = {
        left(tmp_path, "[x]*.jsonl", ended(), 5),
        left(tmp_path, "[x]*.jsonl", os.getpid() if os.getppid() < 2 else os.getppid(), 3600),
        left(tmp_path, "x.jsonl", gone, 3600),
        left(tmp_path, "[x]*.jsonl", "notes", 3600),
        left(tmp_path, "[x]*.jsonl", 10**30, 3600),
    }
    write(tmp_path / "[x]*.jsonl")
    assert not old.exists()
    assert set(tmp_path.iterdir()) == kept | {tmp_path / "[x]*.jsonl"}


def test_a_name_that_is_no_utf_8_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadExport, match=r"'rows\\udcff\.jsonl' cannot be written: a name must be UTF-8"):
        write(tmp_path / "rows\udcff.jsonl")
    assert list(tmp_path.iterdir()) == []
