"""Request bodies: each stored as what differs from an earlier one of its session, found by content.

A harness sends its whole history with every call, and most send their tools behind it, so nearly all of a body stands in
the one before it. What is stored is a digest of the whole, how long a beginning and an end a base has too, and what is
between, without the images in it (`blobs`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from sqlalchemy import select

from polarproxy.errors import StoreDamaged
from polarproxy.store import codec
from polarproxy.store.blobs import put_back, take_out
from polarproxy.store.recent import Recent
from polarproxy.store.schema import blobs, bodies, calls

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement, Connection, RowMapping

    from polarproxy.store.rows import Row

_MIN_SHARED = 256
_MIN_TAIL = 64
_NEARLY = 16
_MAX_BYTES = 64 << 20


def shared_bytes(left: bytes, right: bytes, guess: int = 0) -> int:
    """How many bytes both begin with; found sooner when it is no less than `guess`, which may be anything."""
    size = min(len(left), len(right))
    start = guess if 0 < guess <= size and right.startswith(memoryview(left)[:guess]) else 0
    # Where the messages of a conversation ended, there is one more now.
    if start == size or (start and left[start] != right[start]):
        return start
    differ = np.frombuffer(left, np.uint8, size - start, start) != np.frombuffer(right, np.uint8, size - start, start)
    place = int(differ.argmax())
    return start + place if differ[place] else size


def shared_tail(left: bytes, right: bytes, most: int, guess: int = 0) -> int:
    """How many bytes both end with, of at most so many; 0, or it begins with a quotation mark: never within an image.

    As many as `guess`, which is what `left` shared with the one before it, are as good as a few more.
    """
    if not most:
        return 0
    if 0 < guess <= most and right.endswith(memoryview(left)[len(left) - guess :]):
        before = slice(-guess - _NEARLY, -guess)
        if most - guess < _NEARLY or left[before] != right[before]:
            return guess
    ends = (np.frombuffer(each, np.uint8, most, len(each) - most) for each in (left, right))
    differ = np.not_equal(*ends)[::-1]
    place = int(differ.argmax())
    shared = place if differ[place] else most
    start = right.find(b'"', len(right) - shared)
    return 0 if start < 0 else len(right) - start


@dataclass(frozen=True, slots=True)
class _Known:
    digest: bytes
    body: bytes
    beyond: int
    """How much of the body before it stood behind the beginning of this one: as much of this one will behind the next one's."""
    tail: int
    """How much of its end it has from the body before it."""


@dataclass(frozen=True, slots=True)
class BodyRows:
    """A body as it is stored."""

    body: Row
    """Of `bodies`."""
    beyond: int
    """How much of the body before it is not its beginning."""
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
        self._latest: Recent[_Known] = Recent(max_bytes)

    def rows(self, session_id: str, body: bytes) -> BodyRows:
        """The rows of a body, its data not compressed yet."""
        base = self._latest.of(session_id)
        # A conversation that goes on repeats all but what stands behind its messages.
        shared = 0 if base is None else shared_bytes(base.body, body, len(base.body) - base.beyond)
        beyond = 0 if base is None else len(base.body) - shared
        digest = codec.digest(body)
        if base is None or shared < _MIN_SHARED or base.digest == digest:
            base, shared, tail = None, 0, 0
        else:
            tail = shared_tail(base.body, body, min(len(base.body), len(body)) - shared, base.tail)
            tail = tail if tail >= _MIN_TAIL else 0
        rest, blobs = take_out(body[shared : len(body) - tail])
        row = {
            "digest": digest,
            "length": len(body),
            "base_digest": None if base is None else base.digest,
            "base_length": shared,
            "base_tail": tail,
            "data": rest,
        }
        return BodyRows(row, beyond, blobs)

    def add(self, session_id: str, stored: BodyRows, body: bytes) -> None:
        """Remembers a body that was stored like this."""
        known = _Known(stored.body["digest"], body, stored.beyond, stored.body["base_tail"])
        self._latest.remember(session_id, known, len(body))


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
        body = put_back(codec.decompress(row["data"]), self._blob)
        if row["base_digest"] is not None:
            base = self._bodies[row["base_digest"]]
            # NULL: written before ends were shared.
            # Joined at once: each copy of a long history would cost as much as all else.
            old, tail = memoryview(base), row["base_tail"] or 0
            body = b"".join((old[: row["base_length"]], body, old[len(base) - tail :]))
        if len(body) != row["length"] or codec.digest(body) != row["digest"]:
            raise StoreDamaged(f"body {row['digest'].hex()}: the bytes do not match their digest")
        return body
