"""The files of a spool: records one after the other, each with its length and a checksum of both.

A file begins with `MAGIC`; its first record is a header. A record is its length (uint32), the XXH3-64 of that and of its
bytes (uint64), both little-endian, and the bytes. What a crash left unfinished can only stand at the end of a file; what is
not whole and has a whole record behind it is damage, and costs no more than itself.
"""

from __future__ import annotations

import os
import re
import struct
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec
import xxhash

from polarproxy import __version__
from polarproxy.errors import UNREADABLE, BadSpool, DamagedRecord

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

MAGIC = b"polarspool\x00\x00"
VERSION = 1
SUFFIX = ".spool"
TORN = ".torn"
"""Of a file that holds what was cut off another one."""
_HEAD = struct.Struct("<IQ")
_LENGTH = struct.Struct("<I")
_NUMBER = re.compile(r"[0-9]{10}|[1-9][0-9]{10,}", re.ASCII)
"""As `Spool` writes them: no two names are one number."""
_MAX_RECORD = 1 << 30


class Header(msgspec.Struct, frozen=True):
    """The first record."""

    version: int
    written_by: str
    """Version of the polarproxy that wrote it, for people."""
    made_at: datetime
    database: str
    """Where its records are to be stored."""


_header = msgspec.msgpack.Decoder(Header)


@dataclass(frozen=True, slots=True)
class Found:
    """A record in a file."""

    offset: int
    """Of its bytes."""
    data: bytes


def _framed(data: bytes) -> bytes:
    return _HEAD.pack(len(data), _checksum(len(data), data)) + data


def _checksum(length: int, data: bytes) -> int:
    return xxhash.xxh3_64_intdigest(_LENGTH.pack(length) + data)


class AppendFile:
    """A new file that grows by groups of records; a group is there when `append` returns."""

    def __init__(self, path: Path, database: str) -> None:
        """Raises `OSError`."""
        self.path = path
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        self.size = 0
        """Where the next record goes. What lies beyond was never acknowledged."""
        header = Header(VERSION, __version__, datetime.now(UTC), database)
        try:
            self._write(MAGIC + _framed(msgspec.msgpack.encode(header)))
            sync_folder(path.parent)
        except OSError:
            self.close()
            path.unlink()
            raise

    def append(self, records: Sequence[bytes]) -> list[int]:
        """Where the records' bytes begin, once they are on the disk. Raises `OSError`; then none of them counts."""
        offsets, at = [], self.size
        for data in records:
            offsets.append(at + _HEAD.size)
            at += _HEAD.size + len(data)
        self._write(b"".join(map(_framed, records)))
        return offsets

    def _write(self, data: bytes) -> None:
        # What an earlier attempt left beyond the end is written over, and what is longer must not be read as a record.
        os.ftruncate(self._file, self.size)
        view, at = memoryview(data), self.size
        while view:
            written = os.pwrite(self._file, view, at)
            view, at = view[written:], at + written
        os.fdatasync(self._file)
        self.size = at

    def close(self) -> None:
        """Nothing more is appended."""
        with suppress(OSError):
            # What was begun and did not end is no record.
            os.ftruncate(self._file, self.size)
        os.close(self._file)


class ReadFile:
    """A file that is read."""

    def __init__(self, path: Path) -> None:
        """Raises `OSError`."""
        self.path = path
        self._file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self.header: Header | None = None
        """None: it was cut off before its first record was whole, and holds none; or that record is damaged."""
        self.end = 0
        """Behind the last whole record that was read; `records` moves it on."""
        self.damaged = 0
        """Bytes before that which are no whole records; `records` counts them."""

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return os.fstat(self._file).st_size

    def records(self) -> Iterator[Found]:
        """The whole records. Ends at the end of the file, or where nothing whole follows; raises `BadSpool` for another kind
        of file."""
        begin = os.pread(self._file, len(MAGIC), 0)
        if not MAGIC.startswith(begin):
            raise BadSpool(f"{self.path} is not a file of a spool")
        at = len(MAGIC)
        header = self._at(at)
        if header is not None:
            self._read_header(header)
            at = self.end = at + _HEAD.size + len(header)
        while (following := self._next(at)) is not None:
            begin_at, data = following
            at = self.end = begin_at + _HEAD.size + len(data)
            yield Found(begin_at + _HEAD.size, data)

    def _next(self, at: int) -> tuple[int, bytes] | None:
        """The first whole record there, or behind what is damaged there. None: nothing whole follows, by the lengths."""
        place = at
        while (data := self._at(place)) is None:
            length = self._length(place)
            if length is None:
                return None
            place += _HEAD.size + length
        if place > at:
            # A proxy that has the file may have ended this record only now.
            now = self._at(at)
            if now is not None:
                return at, now
            self.damaged += place - at
        return place, data

    def _length(self, at: int) -> int | None:
        """What the record there says of its length. None: it cannot be so long, or says nothing."""
        head = os.pread(self._file, _LENGTH.size, at)
        length: int = _LENGTH.unpack(head)[0] if len(head) == _LENGTH.size else 0
        return length if 0 < length <= min(_MAX_RECORD, self.size - at) else None

    def _read_header(self, data: bytes) -> None:
        try:
            self.header = _header.decode(data)
        except UNREADABLE as error:
            raise BadSpool(f"{self.path} is not a file of a spool: {error}") from error
        if self.header.version > VERSION:
            raise BadSpool(
                f"{self.path} is of version {self.header.version}, made by polarproxy {self.header.written_by}; this one"
                f" reads up to version {VERSION}"
            )

    def _at(self, at: int) -> bytes | None:
        head = os.pread(self._file, _HEAD.size, at)
        if len(head) < _HEAD.size:
            return None
        length, checksum = _HEAD.unpack(head)
        if length > min(_MAX_RECORD, self.size - at):
            return None
        data = os.pread(self._file, length, at + _HEAD.size)
        return data if len(data) == length and _checksum(length, data) == checksum else None

    def read(self, offset: int) -> bytes:
        """The record whose bytes begin there; raises `DamagedRecord`."""
        data = self._at(offset - _HEAD.size)
        if data is None:
            raise DamagedRecord(f"{self.path}: the record at {offset} is not what was written")
        return data

    def close(self) -> None:
        """Nothing more is read."""
        os.close(self._file)


def spool_files(folder: Path) -> list[Path]:
    """The files of a spool, oldest first."""
    return sorted(path for path in folder.glob(f"*{SUFFIX}") if _NUMBER.fullmatch(path.stem))


def spool_folder(folder: Path, worker: int | None) -> Path:
    """That of one of several processes; `worker` None: it is the only one, and has the folder itself."""
    return folder if worker is None else folder / f"worker-{worker}"


def spool_folders(folder: Path) -> list[Path]:
    """The folder itself and those of workers in it, whoever has them."""
    return [folder, *sorted(folder.glob("worker-*"))]


def sync_folder(folder: Path) -> None:
    """Makes names that were made or removed in a folder lasting."""
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
