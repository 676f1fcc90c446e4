"""The archive file: what is not exactly what was written is refused in a sentence."""

import struct
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zstandard

from polarproxy.errors import BadArchive
from polarproxy.store import codec
from polarproxy.store.archive import FORMAT, VERSION, ArchiveWriter, End, Header, Record, TextsEntry, read_archive
from polarproxy.store.entries import SessionEntry

HEADER = Header(FORMAT, VERSION, "0", datetime(2026, 1, 2, tzinfo=UTC), 1)
RECORDS: list[Record] = [SessionEntry({"session_id": f"s{number}"}, [], 0) for number in range(10)]
RECORDS.append(TextsEntry("m", [(1, b"\xff"), (2, b"")]))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "some.polar"


@pytest.fixture
def archive(path: Path) -> Path:
    with ArchiveWriter(path, len(RECORDS)) as writer:
        for record in RECORDS:
            writer.add(record)
    return path


def framed(*records: object) -> bytes:
    """Records as an archive has them, whatever they are, each with its digest."""
    encoded = [msgspec.msgpack.encode(record) for record in records]
    stream = b"".join(struct.pack("<I", len(data)) + data + codec.digest(data) for data in encoded)
    return zstandard.ZstdCompressor().compress(stream)


def end(*records: object) -> End:
    digests = b"".join(codec.digest(msgspec.msgpack.encode(record)) for record in records)
    return End(len(records), codec.digest(digests))


def test_what_was_written_is_read(archive: Path) -> None:
    assert list(read_archive(archive)) == RECORDS


def test_the_format_is_what_the_documentation_says(archive: Path, path: Path) -> None:
    """Written by hand, it is read as well."""
    path.write_bytes(framed(HEADER, *RECORDS, end(HEADER, *RECORDS)))
    assert list(read_archive(path)) == RECORDS


def test_the_reader_of_the_documentation_works(archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "archive.md").read_text()
    code = page.partition("```python\n")[2].partition("```")[0]
    monkeypatch.chdir(archive.parent)
    archive.rename("run.polar")
    found: dict[str, Any] = {}
    exec(code, found)
    kinds = [record["type"] for record in found["records"]("run.polar")]
    assert kinds == ["header", *["session"] * 10, "texts", "end"]


def test_a_file_that_is_cut_anywhere_is_refused(archive: Path) -> None:
    whole = archive.read_bytes()
    for size in range(len(whole)):
        archive.write_bytes(whole[:size])
        with pytest.raises(BadArchive, match=r"too early|not a polarproxy archive|damaged"):
            list(read_archive(archive))


def test_a_byte_that_changed_never_changes_a_record(archive: Path) -> None:
    whole = bytearray(archive.read_bytes())
    refused = 0
    for place in range(len(whole)):
        changed = bytearray(whole)
        changed[place] ^= 0x10
        archive.write_bytes(changed)
        try:
            # Some bits of a zstd frame say nothing about what is in it.
            assert list(read_archive(archive)) == RECORDS
        except BadArchive:
            refused += 1
    assert refused > 0.9 * len(whole)


def _without(records: list[Record]) -> Iterator[bytes]:
    """Archives that are whole as far as each record goes."""
    yield framed(HEADER, *records)
    yield framed(HEADER, *records[1:], end(HEADER, *records))
    yield framed(HEADER, *records[::-1], end(HEADER, *records))
    yield framed(HEADER, *records, records[0], end(HEADER, *records))
    yield framed(HEADER, *records, end(HEADER, *records), records[0])
    yield framed(HEADER, *records, end(HEADER, *records)) + b"more"
    yield framed(HEADER, HEADER, *records, end(HEADER, HEADER, *records))


@pytest.mark.parametrize("number", range(7))
def test_records_cannot_be_taken_away_or_added(path: Path, number: int) -> None:
    path.write_bytes(list(_without(RECORDS[:3]))[number])
    with pytest.raises(BadArchive):
        list(read_archive(path))


OTHERS = {
    "empty": b"",
    "text": b"Dear diary, " * 100,
    "a database": b"SQLite format 3\x00" + bytes(4096),
    "zstd of something else": zstandard.compress(b"Dear diary, " * 100),
    "zstd of nothing": zstandard.compress(b""),
    "records of something else": framed({"type": "header", "format": "pictures"}, [1, 2]),
    "no header": framed(RECORDS[0], end(RECORDS[0])),
    "a record of another kind": framed(HEADER, {"type": "picture"}, end(HEADER)),
    "text that is none": framed(HEADER)
    + zstandard.compress(struct.pack("<I", 3) + b"\xa2\xff\xff" + codec.digest(b"\xa2\xff\xff")),
    "an endless record": zstandard.compress(struct.pack("<I", 2**32 - 1) + b"x" * 100),
}


@pytest.mark.parametrize("name", OTHERS)
def test_another_file_is_refused_by_name(path: Path, name: str) -> None:
    path.write_bytes(OTHERS[name])
    with pytest.raises(BadArchive, match=r"some\.polar"):
        list(read_archive(path))


def test_a_file_that_is_not_there_and_a_folder(tmp_path: Path) -> None:
    for path in (tmp_path / "none.polar", tmp_path):
        with pytest.raises(BadArchive, match="cannot be read"):
            list(read_archive(path))


def test_a_newer_version_is_told_from_a_damaged_file(path: Path) -> None:
    newer = msgspec.structs.replace(HEADER, version=VERSION + 1, written_by="9.9")
    path.write_bytes(framed(newer, {"type": "of another age"}))
    with pytest.raises(BadArchive, match=r"version 2, made by polarproxy 9\.9"):
        list(read_archive(path))


def broken_off(path: Path) -> None:
    with ArchiveWriter(path, 1) as writer:
        writer.add(RECORDS[0])
        raise ZeroDivisionError


def test_what_was_broken_off_is_no_archive(path: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        broken_off(path)
    with pytest.raises(BadArchive, match="too early"):
        list(read_archive(path))


def test_what_is_nested_too_deeply_is_refused(path: Path) -> None:
    encoded = msgspec.msgpack.encode({"type": "session", "row": {"a": 1}, "rewards": [], "calls": 0})
    nested = encoded.replace(b"\xa1a\x01", b"\xa1a" + b"\x91" * 5000 + b"\xc0")
    stream = b"".join(
        struct.pack("<I", len(data)) + data + codec.digest(data) for data in (msgspec.msgpack.encode(HEADER), nested)
    )
    path.write_bytes(zstandard.ZstdCompressor().compress(stream))
    with pytest.raises(BadArchive, match="record 2 cannot be read"):
        list(read_archive(path))
