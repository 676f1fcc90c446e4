"""The files of a spool: what was appended is read back, what is torn or changed is never taken for a record."""

import errno
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polarproxy.errors import BadSpool, DamagedRecord
from polarproxy.store import spool_files
from polarproxy.store.spool_files import MAGIC, AppendFile, ReadFile

RECORDS = [b"", b"one", b"two" * 100, b"\x00" * 40]


def written(folder: Path, *groups: list[bytes]) -> Path:
    file = AppendFile(folder / "0000000001.spool", "sqlite:////db")
    for group in groups:
        file.append(group)
    file.close()
    return file.path


def read(path: Path) -> list[bytes]:
    file = ReadFile(path)
    found = [record.data for record in file.records()]
    file.close()
    return found


def test_records_are_read_back_in_order(tmp_path: Path) -> None:
    path = written(tmp_path, RECORDS[:2], [], RECORDS[2:])
    file = ReadFile(path)
    found = list(file.records())
    assert [record.data for record in found] == RECORDS
    assert [file.read(record.offset) for record in found] == RECORDS
    assert file.header is not None
    assert file.header.database == "sqlite:////db"
    assert file.end == file.size == path.stat().st_size
    file.close()


@given(st.lists(st.binary(max_size=30), max_size=6), st.data())
@settings(max_examples=60)
def test_a_file_that_is_cut_anywhere_gives_a_beginning_of_its_records(
    tmp_path_factory: pytest.TempPathFactory, records: list[bytes], data: st.DataObject
) -> None:
    whole = written(tmp_path_factory.mktemp("spool"), records)
    content = whole.read_bytes()
    length = data.draw(st.integers(0, len(content)))
    whole.write_bytes(content[:length])
    file = ReadFile(whole)
    found = [record.data for record in file.records()]
    assert found == records[: len(found)]
    assert file.end <= length
    if length == len(content):
        assert (found, file.end) == (records, length)
    file.close()


@given(st.lists(st.binary(max_size=30), min_size=1, max_size=4), st.data())
@settings(max_examples=60)
def test_a_byte_that_changed_is_never_part_of_a_record(
    tmp_path_factory: pytest.TempPathFactory, records: list[bytes], data: st.DataObject
) -> None:
    path = written(tmp_path_factory.mktemp("spool"), records)
    content = bytearray(path.read_bytes())
    place = data.draw(st.integers(0, len(content) - 1))
    content[place] ^= data.draw(st.integers(1, 255))
    path.write_bytes(content)
    try:
        found = read(path)
    except BadSpool:
        assert place < len(MAGIC)
        return
    assert len(found) <= len(records)
    rest = iter(records)
    assert all(record in rest for record in found)  # in order


@given(st.lists(st.binary(min_size=1, max_size=30), min_size=2, max_size=5), st.data())
@settings(max_examples=60)
def test_a_byte_that_changed_costs_its_record_alone(
    tmp_path_factory: pytest.TempPathFactory, records: list[bytes], data: st.DataObject
) -> None:
    path = written(tmp_path_factory.mktemp("spool"), records)
    file = ReadFile(path)
    offsets = [record.offset for record in file.records()]
    file.close()
    bad = data.draw(st.integers(0, len(records) - 2))
    content = bytearray(path.read_bytes())
    content[offsets[bad] + data.draw(st.integers(0, len(records[bad]) - 1))] ^= data.draw(st.integers(1, 255))
    path.write_bytes(content)
    file = ReadFile(path)
    assert [record.data for record in file.records()] == records[:bad] + records[bad + 1 :]
    assert (file.damaged, file.end) == (12 + len(records[bad]), file.size)
    file.close()


def test_a_record_that_is_read_again_is_checked_again(tmp_path: Path) -> None:
    path = written(tmp_path, [b"payload"])
    file = ReadFile(path)
    (record,) = file.records()
    path.write_bytes(path.read_bytes()[:-1] + b"X")
    with pytest.raises(DamagedRecord, match="not what was written"):
        file.read(record.offset)
    file.close()


def test_other_files_and_newer_ones_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "0000000001.spool"
    path.write_bytes(b"SQLite format 3\x00")
    with pytest.raises(BadSpool, match="not a file of a spool"):
        read(path)
    newer = msgspec.msgpack.encode(
        {"version": 2, "written_by": "9", "made_at": "2030-01-01T00:00:00Z", "database": "x"}
    )
    path.write_bytes(MAGIC + spool_files._framed(newer))
    with pytest.raises(BadSpool, match="of version 2, made by polarproxy 9"):
        read(path)
    path.write_bytes(MAGIC + spool_files._framed(b"\xc1"))
    with pytest.raises(BadSpool, match="not a file of a spool"):
        read(path)


@contextmanager
def room_for(count: int, patch: pytest.MonkeyPatch) -> Iterator[None]:
    """So many bytes can be written, and then the disk is full."""
    left, pwrite = count, os.pwrite

    def write(file: int, data: bytes, at: int) -> int:
        nonlocal left
        if not left:
            raise OSError(errno.ENOSPC, "No space left on device")
        done = pwrite(file, data[:left], at)
        left -= done
        return done

    with patch.context() as context:
        context.setattr(os, "pwrite", write)
        yield


@pytest.mark.parametrize("room", [0, 1, 11, 13, 40])
def test_a_full_disk_leaves_the_records_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int) -> None:
    file = AppendFile(tmp_path / "0000000001.spool", "d")
    file.append([b"first"])
    with room_for(room, monkeypatch), pytest.raises(OSError, match="No space"):
        file.append([b"second", b"third" * 20])
    assert read(file.path) in ([b"first"], [b"first", b"second"])
    # There is room again: nothing of what was refused stands between the records, nor after them.
    file.append([b"4"])
    assert read(file.path) == [b"first", b"4"]
    file.close()


def test_what_was_refused_is_not_in_a_file_that_ends_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = AppendFile(tmp_path / "0000000001.spool", "d")
    file.append([b"first"])
    with room_for(30, monkeypatch), pytest.raises(OSError, match="No space"):
        file.append([b"second", b"third" * 20])
    file.close()
    again = ReadFile(file.path)
    assert [record.data for record in again.records()] == [b"first"]
    assert again.end == again.size
    again.close()


def test_a_group_whose_flush_failed_leaves_nothing_behind_what_comes_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    file = AppendFile(tmp_path / "0000000001.spool", "d")
    with monkeypatch.context() as patched:
        patched.setattr(os, "fdatasync", fail)
        with pytest.raises(OSError, match="Input/output"):
            file.append([b"old 1", b"old 2"])
    file.append([b"new 1"])
    file.close()
    assert read(file.path) == [b"new 1"]


def test_a_file_that_cannot_be_begun_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with room_for(5, monkeypatch), pytest.raises(OSError, match="No space"):
        AppendFile(tmp_path / "0000000001.spool", "d")
    assert list(tmp_path.iterdir()) == []


def test_the_format(tmp_path: Path) -> None:
    """As docs/reference/spool.md has it: a file of today must be readable tomorrow."""
    content = written(tmp_path, [b"abc"]).read_bytes()
    assert content.startswith(b"polarspool\x00\x00")
    (length,) = struct.unpack_from("<I", content, 12)
    assert content[12 + 12 + length :] == bytes.fromhex("03000000") + content[-11:-3] + b"abc"
