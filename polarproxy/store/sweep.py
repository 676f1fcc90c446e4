"""Bodies that no call needs any more: neither as its own, nor as one that its own builds on."""

from __future__ import annotations

from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING

from sqlalchemy import ColumnElement, delete, exists, func, select, true

from polarproxy.errors import StoreDamaged
from polarproxy.store.schema import blobs, bodies, body_blobs, calls

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sqlalchemy import Connection

_AT_ONCE = 5000
"""Bodies in one transaction, for each of which the table of calls is read once."""


@dataclass(frozen=True, slots=True)
class Unused:
    """A body that nothing needs."""

    digest: bytes
    base_digest: bytes | None
    """The body that it builds on. None: it stands alone."""
    bytes: int
    """As stored."""


def unused_bodies(connection: Connection, kept: ColumnElement[bool] | None = None) -> list[Unused]:
    """The bodies that no call needs, or none of those calls that meet the condition."""
    own = select(calls.c.body_digest).where(calls.c.body_digest.is_not(None), true() if kept is None else kept)
    used = own.cte("used", recursive=True)
    bases = select(bodies.c.base_digest).join(used, bodies.c.digest == used.c.body_digest)
    used = used.union(bases.where(bodies.c.base_digest.is_not(None)))
    query = select(bodies.c.digest, bodies.c.base_digest, func.length(bodies.c.data))
    # A join, because PostgreSQL would search a long list that is `not in` from its start for every body.
    query = query.select_from(bodies.outerjoin(used, used.c.body_digest == bodies.c.digest))
    found = connection.execute(query.where(used.c.body_digest.is_(None))).all()
    return [Unused(row[0], row[1], row[2]) for row in found]


def sweep_bodies(connection: Connection) -> Iterator[tuple[int, int]]:
    """Removes what is not needed; yields how many bodies and bytes each transaction removed. Raises `StoreDamaged`."""
    with connection.begin():
        found = {body.digest: body for body in unused_bodies(connection)}
    order = _dependents_first(list(found.values()))
    removed: set[bytes] = set()
    for start in range(0, len(order), _AT_ONCE):
        with connection.begin():
            gone = _remove(connection, order[start : start + _AT_ONCE], removed)
        yield len(gone), sum(found[digest].bytes for digest in gone)


def _dependents_first(unused: Sequence[Unused]) -> list[bytes]:
    sorter: TopologicalSorter[bytes] = TopologicalSorter({body.digest: () for body in unused})
    known = {body.digest for body in unused}
    for body in unused:
        if body.base_digest in known:
            sorter.add(body.base_digest, body.digest)
    try:
        return list(sorter.static_order())
    except CycleError as error:
        raise StoreDamaged(f"bodies build on each other in a circle, {error.args[1][0].hex()} among them") from error


def _remove(connection: Connection, candidates: Sequence[bytes], removed: set[bytes]) -> list[bytes]:
    """Removes those that nobody has begun to use since they were found."""
    chosen = bodies.c.digest.in_(candidates)
    # From here on no call can begin to refer to them.
    connection.execute(select(bodies.c.digest).where(chosen).with_for_update()).all()
    used = set(connection.execute(select(calls.c.body_digest).where(calls.c.body_digest.in_(candidates))).scalars())
    dependents: dict[bytes, list[bytes]] = {}
    query = select(bodies.c.digest, bodies.c.base_digest).where(bodies.c.base_digest.in_(candidates))
    for row in connection.execute(query):
        dependents.setdefault(row.base_digest, []).append(row.digest)
    gone: list[bytes] = []
    for digest in candidates:
        if digest not in used and removed.issuperset(dependents.get(digest, ())):
            removed.add(digest)
            gone.append(digest)
    connection.execute(delete(body_blobs).where(body_blobs.c.body_digest.in_(gone)))
    connection.execute(delete(bodies).where(bodies.c.digest.in_(gone)))
    return gone


def unused_blob_bytes(connection: Connection, going: Sequence[Unused]) -> int:
    """Bytes of the images that no body holds once these bodies are gone."""
    digests = {body.digest for body in going}
    kept = {blob for body, blob in connection.execute(select(*body_blobs.c)) if body not in digests}
    sizes = connection.execute(select(blobs.c.digest, func.length(blobs.c.data)))
    return sum(size for digest, size in sizes if digest not in kept)


def sweep_blobs(connection: Connection) -> tuple[int, int]:
    """Removes the images that no body holds any more; how many, and how many bytes."""
    unused = ~exists().where(body_blobs.c.blob_digest == blobs.c.digest)
    with connection.begin():
        size = func.coalesce(func.sum(func.length(blobs.c.data)), 0)
        found = connection.execute(select(func.count(), size).where(unused)).one()
        connection.execute(delete(blobs).where(unused))
    return found[0], int(found[1])
