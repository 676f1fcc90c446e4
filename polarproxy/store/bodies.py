"""Request bodies: each stored as what differs from an earlier one of its session, found by content.

A harness sends its whole history with every call, so most of a body stands in the one before it. What is stored is a
digest of the whole, the length of the beginning that a base has too, and the rest, without the images in it (`blobs`).
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from sqlalchemy import select

from polarproxy.errors import StoreDamaged
from polarproxy.store import codec
from polarproxy.store.blobs import put_back, take_out
from polarproxy.store.schema import blobs, bodies, calls

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement, Connection, RowMapping

    from polarproxy.store.rows import Row

_MIN_SHARED = 256
_MAX_BYTES = 64 << 20


def shared_bytes(left: bytes, right: bytes) -> int:
    """How many bytes both begin with."""
    size = min(len(left), len(right))
    words = size // 8
    # Eight at a time up to the first difference, which lies within the next eight.
    differ = np.frombuffer(left, np.uint64, words) != np.frombuffer(right, np.uint64, words)
    place = int(np.argmax(differ)) if words else 0
    start = 8 * (place if words and differ[place] else words)
    for at in range(start, min(start + 8, size)):
        if left[at] != right[at]:
            return at
    return min(start + 8, size)


@dataclass(frozen=True, slots=True)
class _Known:
    digest: bytes
    body: bytes


@dataclass(frozen=True, slots=True)
class BodyRows:
    """A body as it is stored."""

    body: Row
    """Of `bodies`."""
    _blobs: dict[bytes, bytes]

    @property
    def blobs(self) -> list[Row]:
        """Of `blobs`."""
        return [{"digest": digest, "data": data} for digest, data in self._blobs.items()]

    @property
    def references(self) -> list[Row]:
        """Of `body_blobs`."""
        return [{"body_digest": self.body["digest"], "blob_digest": digest} for digest in self._blobs]


class BodyBases:
    """The latest body of each session; bounded in memory, and right also when it is empty."""

    def __init__(self, max_bytes: int = _MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._latest: OrderedDict[str, _Known] = OrderedDict()

    def rows(self, session_id: str, body: bytes) -> BodyRows:
        """The rows of a body, its data not compressed yet."""
        base = self._latest.get(session_id)
        shared = 0 if base is None else shared_bytes(base.body, body)
        digest = codec.digest(body)
        if base is None or shared < _MIN_SHARED or base.digest == digest:
            base, shared = None, 0
        rest, blobs = take_out(body[shared:])
        row = {
            "digest": digest,
            "length": len(body),
            "base_digest": None if base is None else base.digest,
            "base_length": shared,
            "data": rest,
        }
        return BodyRows(row, blobs)

    def add(self, session_id: str, digest: bytes, body: bytes) -> None:
        """Remembers a body that was stored."""
        self._forget(session_id)
        self._latest[session_id] = _Known(digest, body)
        self._bytes += len(body)
        while self._bytes > self._max_bytes:
            self._forget(next(iter(self._latest)))

    def _forget(self, session_id: str) -> None:
        known = self._latest.pop(session_id, None)
        if known is not None:
            self._bytes -= len(known.body)


class BodyReader:
    """Rebuilds bodies; remembers what it rebuilt, so that a session costs its unique bytes."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._bodies: dict[bytes, bytes] = {}
        self._rows: dict[bytes, RowMapping] = {}

    def fetch(self, chosen: ColumnElement[bool]) -> None:
        """Reads the bodies of the calls that meet a condition at once, as they are stored."""
        query = select(bodies).where(bodies.c.digest.in_(select(calls.c.body_digest).where(chosen)))
        self._rows = {row["digest"]: row for row in self._connection.execute(query).mappings()}

    def body(self, digest: bytes | None) -> bytes:
        """The body with this digest, empty for None; raises `StoreDamaged` when it is not what was written."""
        if digest is None:
            return b""
        chain: list[RowMapping] = []
        wanted: bytes | None = digest
        while wanted is not None and wanted not in self._bodies:
            if any(row["digest"] == wanted for row in chain):
                raise StoreDamaged(f"body {digest.hex()} builds on itself")
            chain.append(self._row(wanted))
            wanted = chain[-1]["base_digest"]
        for row in reversed(chain):
            self._bodies[row["digest"]] = self._rebuild(row)
        return self._bodies[digest]

    def _row(self, digest: bytes) -> RowMapping:
        if digest in self._rows:
            return self._rows[digest]
        row = self._connection.execute(select(bodies).where(bodies.c.digest == digest)).mappings().first()
        if row is None:
            raise StoreDamaged(f"body {digest.hex()} is missing")
        return row

    def _blob(self, digest: bytes) -> bytes | None:
        data: bytes | None = self._connection.execute(select(blobs.c.data).where(blobs.c.digest == digest)).scalar()
        return data

    def _rebuild(self, row: RowMapping) -> bytes:
        rest = put_back(codec.decompress(row["data"]), self._blob)
        body = rest if row["base_digest"] is None else self._bodies[row["base_digest"]][: row["base_length"]] + rest
        if len(body) != row["length"] or codec.digest(body) != row["digest"]:
            raise StoreDamaged(f"body {row['digest'].hex()}: the bytes do not match their digest")
        return body
