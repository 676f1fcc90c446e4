"""The file format of portable archives: sessions as one zstd frame of checked records, read and written as a stream.

`docs/reference/archive.md` describes the bytes. An archive knows nothing of the database that it came from.
"""

from __future__ import annotations

import struct
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeAlias

import msgspec
import xxhash
import zstandard

from polarproxy import __version__
from polarproxy.errors import UNREADABLE, BadArchive
from polarproxy.model.plurals import counted
from polarproxy.store import codec
from polarproxy.store.entries import CallEntry, SessionEntry

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import TracebackType

FORMAT = "polarproxy-archive"
VERSION = 1
_MAGIC = b"\x28\xb5\x2f\xfd"
_LENGTH = struct.Struct("<I")
_DIGEST_BYTES = 16
_MAX_RECORD = 1 << 30
_WINDOW_LOG = 24
"""Beginnings that repeat within 16 MiB cost next to nothing: the history of a session, the system prompt of its siblings."""
_LEVEL = 3


class Header(msgspec.Struct, frozen=True, tag="header"):
    """The first record."""

    format: str
    version: int
    written_by: str
    """Version of the polarproxy that wrote it, for people."""
    written_at: datetime
    sessions: int


class TextsEntry(msgspec.Struct, frozen=True, tag="texts"):
    """How a model spells some of its tokens."""

    model: str
    texts: list[tuple[int, bytes]]


class End(msgspec.Struct, frozen=True, tag="end"):
    """The last record."""

    records: int
    """How many stand before this one."""
    digest: bytes
    """XXH3-128 of their digests, one after the other."""


Record: TypeAlias = SessionEntry | CallEntry | TextsEntry
_decoder: msgspec.msgpack.Decoder[Header | SessionEntry | CallEntry | TextsEntry | End] = msgspec.msgpack.Decoder(
    Header | SessionEntry | CallEntry | TextsEntry | End
)
_header = msgspec.msgpack.Decoder(Header)


class ArchiveWriter:
    """Writes one archive; without its last record, when the block ends with an error, it is none."""

    def __init__(self, path: Path, sessions: int) -> None:
        parameters = zstandard.ZstdCompressionParameters.from_level(_LEVEL, window_log=_WINDOW_LOG)
        self._stream = zstandard.ZstdCompressor(compression_params=parameters).stream_writer(path.open("wb"))
        self._encoder = msgspec.msgpack.Encoder()
        self._digests = xxhash.xxh3_128()
        self._records = 0
        self._put(Header(FORMAT, VERSION, __version__, datetime.now(UTC), sessions))

    def add(self, record: Record) -> None:
        """The next record."""
        self._put(record)

    def _put(self, record: Header | Record | End) -> None:
        data = self._encoder.encode(record)
        digest = codec.digest(data)
        self._stream.write(_LENGTH.pack(len(data)) + data + digest)
        self._digests.update(digest)
        self._records += 1

    def __enter__(self) -> ArchiveWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None) -> None:
        try:
            if kind is None:
                self._put(End(self._records, self._digests.digest()))
        finally:
            self._stream.close()  # type: ignore[no-untyped-call]


def read_archive(path: Path) -> Iterator[Record]:
    """The records of an archive in order, each checked; raises `BadArchive` as soon as something is wrong with it."""
    try:
        with path.open("rb") as file:
            if file.read(len(_MAGIC)) != _MAGIC:
                raise BadArchive(f"{path} is not a polarproxy archive")
            file.seek(0)
            decompressor = zstandard.ZstdDecompressor(max_window_size=1 << _WINDOW_LOG)
            with decompressor.stream_reader(file, read_across_frames=True, closefd=False) as stream:
                yield from _Reader(path, stream).records()
    except OSError as error:
        raise BadArchive(f"{path} cannot be read: {error.strerror or error}") from error
    except zstandard.ZstdError as error:
        raise BadArchive(f"{path} is damaged: {error}") from error


class _Reader:
    def __init__(self, path: Path, stream: zstandard.ZstdDecompressionReader) -> None:
        self._path = path
        self._stream = stream
        self._digests = xxhash.xxh3_128()
        self._records = 0

    def records(self) -> Iterator[Record]:
        self._check_header(self._next())
        while True:
            seen, digests = self._records, self._digests.digest()
            record = self._decode(self._next())
            if isinstance(record, End):
                break
            if isinstance(record, Header):
                raise BadArchive(f"{self._path} is damaged: it begins twice")
            yield record
        if (record.records, record.digest) != (seen, digests):
            raise BadArchive(f"{self._path} is damaged: records are missing, or are not those that were written")
        if self._stream.read(1):
            raise BadArchive(f"{self._path} is damaged: something follows after its end")

    def _check_header(self, data: bytes) -> None:
        try:
            header = _header.decode(data)
        except UNREADABLE:
            raise BadArchive(f"{self._path} is not a polarproxy archive") from None
        if header.format != FORMAT:
            raise BadArchive(f"{self._path} is not a polarproxy archive")
        if header.version > VERSION:
            raise BadArchive(
                f"{self._path} is an archive of version {header.version}, made by polarproxy {header.written_by};"
                f" this one reads up to version {VERSION}"
            )

    def _decode(self, data: bytes) -> Header | Record | End:
        try:
            return _decoder.decode(data)
        except UNREADABLE as error:
            raise BadArchive(f"{self._path}: record {self._records} cannot be read: {error}") from error

    def _next(self) -> bytes:
        """The bytes of the next record."""
        (length,) = _LENGTH.unpack(self._take(_LENGTH.size))
        if length > _MAX_RECORD:
            raise BadArchive(f"{self._path} is damaged: record {self._records + 1} claims to be {length} bytes long")
        data, digest = self._take(length), self._take(_DIGEST_BYTES)
        if codec.digest(data) != digest:
            raise BadArchive(f"{self._path} is damaged: record {self._records + 1} does not match its digest")
        self._digests.update(digest)
        self._records += 1
        return data

    def _take(self, size: int) -> bytes:
        """The next bytes; the stream gives fewer than were asked for only at its end."""
        data = self._stream.read(size)
        if len(data) != size:
            raise BadArchive(f"{self._path} ends too early: it was cut off after {counted(self._records, 'record')}")
        return data
