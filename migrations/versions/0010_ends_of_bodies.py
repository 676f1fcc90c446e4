"""a body takes its end from its base too, and short sequences of ids are packed: an earlier program reads neither"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
import zstandard
from alembic import op

if TYPE_CHECKING:
    from collections.abc import Iterator

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

_AT_ONCE = 500
_KEPT = 64
"""Whole bodies that are kept at hand while they are written anew."""
_PACKED = b"\x12"

_bodies = sa.table("bodies", *map(sa.column, ("digest", "base_digest", "base_length", "base_tail", "data")))
_blobs = sa.table("blobs", sa.column("digest"), sa.column("data"))
_calls = sa.table("calls", sa.column("call_id"), sa.column("prompt_suffix"))
_completions = sa.table("completions", *map(sa.column, ("call_id", "choice_index", "token_ids")))


def upgrade() -> None:
    # NULL: no end, as in all that is there.
    op.add_column("bodies", sa.Column("base_tail", sa.Integer(), nullable=True))


def downgrade() -> None:
    connection = op.get_bind()
    _unpack(connection, _calls, [_calls.c.call_id], _calls.c.prompt_suffix)
    _unpack(connection, _completions, [_completions.c.call_id, _completions.c.choice_index], _completions.c.token_ids)
    _write_ends(connection)
    op.drop_column("bodies", "base_tail")


def _unpack(connection: sa.Connection, table: sa.TableClause, key: list[Any], column: Any) -> None:
    compressor = zstandard.ZstdCompressor(level=1)
    for row in _some(connection, sa.select(*key, column), key):
        stored = row[-1]
        if stored is not None and stored[:1] == _PACKED:
            this = sa.and_(*(part == value for part, value in zip(key, row, strict=False)))
            whole = compressor.compress(_ids(stored[1:]))
            connection.execute(sa.update(table).where(this).values({column.name: whole}))


def _some(connection: sa.Connection, query: Any, key: list[Any]) -> Iterator[Any]:
    """The rows in order of the key, some at a time: what was seen may be changed."""
    after: Any = None
    while True:
        beyond = query if after is None else query.where(sa.tuple_(*key) > sa.tuple_(*map(sa.literal, after)))
        found = connection.execute(beyond.order_by(*key).limit(_AT_ONCE)).all()
        yield from found
        if len(found) < _AT_ONCE:
            return
        after = found[-1][: len(key)]


def _ids(packed: bytes) -> bytes:
    count = 4 * len(packed) // 9
    raw, high = bytearray(4 * count), packed[2 * count :]
    raw[0::4], raw[1::4] = packed[:count], packed[count : 2 * count]
    for place in range(count):
        raw[4 * place + 2] = high[place // 4] >> 2 * (place % 4) & 3
    return bytes(raw)


def _write_ends(connection: sa.Connection) -> None:
    """Writes what a body has from the end of its base into the body's own data."""
    compressor, decompressor = zstandard.ZstdCompressor(level=1), zstandard.ZstdDecompressor()
    whole: OrderedDict[bytes, bytes] = OrderedDict()

    def read(digest: bytes) -> Any:
        return connection.execute(sa.select(_bodies).where(_bodies.c.digest == digest)).mappings().one()

    def body(digest: bytes) -> bytes:
        chain = [read(digest)] if digest not in whole else []
        while chain and chain[-1]["base_digest"] is not None and chain[-1]["base_digest"] not in whole:
            chain.append(read(chain[-1]["base_digest"]))
        made = whole.get(digest, b"")
        for row in reversed(chain):
            base = whole.get(row["base_digest"], made)
            tail = base[len(base) - (row["base_tail"] or 0) :]
            made = base[: row["base_length"]] + _put_back(connection, decompressor.decompress(row["data"])) + tail
        whole[digest] = made
        while len(whole) > _KEPT:
            whole.popitem(last=False)
        return made

    query = sa.select(_bodies.c.digest, _bodies.c.base_digest, _bodies.c.base_tail)
    for row in _some(connection, query.where(_bodies.c.base_tail > 0), [_bodies.c.digest]):
        tail = body(row.base_digest)[-row.base_tail :].replace(b"\0", b"\0\0")
        data = compressor.compress(decompressor.decompress(read(row.digest)["data"]) + tail)
        this = sa.update(_bodies).where(_bodies.c.digest == row.digest)
        connection.execute(this.values(data=data, base_tail=0))


def _put_back(connection: sa.Connection, body: bytes) -> bytes:
    """The body's own bytes for what stands between NUL bytes."""
    import re
    from base64 import b64encode

    def given(match: re.Match[bytes]) -> bytes:
        if match[1] == b"\0":
            return b"\0"
        digest = bytes.fromhex(match[1][:32].decode())
        return b64encode(connection.execute(sa.select(_blobs.c.data).where(_blobs.c.digest == digest)).scalar_one())

    return re.sub(rb"\0(\0|[0-9a-f]{32}\0)", given, body)
