"""The control routes by which trainers take batches: next, acknowledged, given back, who has what."""

from __future__ import annotations

import asyncio
import re
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Protocol, TypeVar
from urllib.parse import parse_qsl

import msgspec
from aiohttp import web
from sqlalchemy.exc import DBAPIError

from polarproxy.errors import BadRequest, StoreUnavailable
from polarproxy.store.database import reason

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from polarproxy.proxy.parts import Parts
    from polarproxy.store.leases import Consumer, Lease
    from polarproxy.store.ready import Waiting

_T = TypeVar("_T")

_FIRST_LOOK_S, _SLOWEST_LOOK_S = 0.25, 2.0
"""How often the store is asked for somebody who waits."""


class Asked(Protocol):
    """What a consumer wants."""

    @property
    def wait(self) -> float:
        """Seconds to wait until there is a batch."""


class BatchSource(Protocol):
    """Makes batches; the command line says which. Its methods block."""

    def read(self, query: Mapping[str, str]) -> Asked:
        """Raises `BadExport` for a query that cannot be understood."""

    def next(self, wanted: Any) -> Lease | None:
        """None: there is none yet."""

    def waiting(self, wanted: Any) -> Waiting:
        """Why there is none."""

    def body(self, wanted: Any, lease: Lease) -> tuple[bytes, str]:
        """A batch as it was asked for, and its media type."""

    def acknowledge(self, consumer: str, lease_id: str) -> bool:
        """False: that was known."""

    def release(self, consumer: str, lease_id: str) -> bool:
        """False: the lease is not in force."""

    def consumers(self) -> list[Consumer]:
        """Everybody who ever took a batch."""


_NO_ESCAPE = re.compile("%(?![0-9A-Fa-f]{2})")


def _query(http: web.Request) -> dict[str, str]:
    """What a query says. Raises `BadRequest` where it would have to be guessed: what is no UTF-8 could only be read as another
    name, by which groups would be handed out for good."""
    raw = http.rel_url.raw_query_string
    try:
        raw.encode()
        pairs = parse_qsl(raw, keep_blank_values=True, errors="strict")
    except UnicodeError as error:
        raise BadRequest("the query is no UTF-8, or escapes what is none") from error
    if _NO_ESCAPE.search(raw):
        raise BadRequest("the query has a % that escapes nothing; a % itself is written %25")
    names = [name for name, _ in pairs]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise BadRequest(f"the query says {twice!r} twice")
    return dict(pairs)


async def _beside(question: Callable[..., _T], *arguments: Any) -> _T:
    """Asks beside the event loop. Making a batch takes as long as it takes; raises `StoreUnavailable`."""
    try:
        return await asyncio.to_thread(question, *arguments)
    except DBAPIError as error:
        raise StoreUnavailable(f"the store cannot be asked: {reason(error)}") from error


async def next_batch(parts: Parts, http: web.Request) -> web.Response:
    """`GET /api/batches/next`: 200 with a batch, or 204 when there is none within `wait` seconds."""
    source = await asyncio.to_thread(parts.batches)
    wanted = source.read(_query(http))
    lease = await _awaited(parts, source, wanted)
    if lease is None:
        said = await _beside(source.waiting, wanted)
        return web.Response(status=204, headers={f"x-polarproxy-{name}": str(n) for name, n in asdict(said).items()})
    body, media = await asyncio.to_thread(source.body, wanted, lease)
    headers = {
        "x-polarproxy-batch": lease.batch_id,
        "x-polarproxy-lease": lease.lease_id,
        "x-polarproxy-consumer": lease.consumer,
        "x-polarproxy-rows": str(lease.rows),
        "x-polarproxy-expires": lease.expires_at.isoformat(),
    }
    return web.Response(body=body, content_type=media, headers=headers)


async def _awaited(parts: Parts, source: BatchSource, wanted: Asked) -> Lease | None:
    """Nothing says that a group has become complete, in this process or another, so the store is asked again and again."""
    loop = asyncio.get_running_loop()
    deadline, pause = loop.time() + wanted.wait, _FIRST_LOOK_S
    while (lease := await _beside(source.next, wanted)) is None:
        left = deadline - loop.time()
        if left <= 0 or parts.ending.is_set():
            return None
        try:
            async with asyncio.timeout(min(pause, left)):
                await parts.ending.wait()
        except TimeoutError:
            pause = min(2 * pause, _SLOWEST_LOOK_S)
    return lease


async def acknowledge(parts: Parts, http: web.Request) -> web.Response:
    """`POST /api/batches/{lease_id}/ack`; again, it is nothing."""
    source = await asyncio.to_thread(parts.batches)
    consumer, lease_id = _query(http).get("consumer", "default"), http.match_info["lease_id"]
    first = await _beside(source.acknowledge, consumer, lease_id)
    return _json({"consumer": consumer, "lease_id": lease_id, "acknowledged": True, "first": first})


async def release(parts: Parts, http: web.Request) -> web.Response:
    """`POST /api/batches/{lease_id}/release`: the batch is handed out again at once."""
    source = await asyncio.to_thread(parts.batches)
    consumer, lease_id = _query(http).get("consumer", "default"), http.match_info["lease_id"]
    released = await _beside(source.release, consumer, lease_id)
    return _json({"consumer": consumer, "lease_id": lease_id, "released": released})


async def show_batches(parts: Parts, http: web.Request) -> web.Response:
    """`GET /api/batches`: every consumer, and what the groups wait for that the one of the query lacks."""
    source = await asyncio.to_thread(parts.batches)
    wanted = source.read(_query(http))
    consumers, waiting = await _beside(source.consumers), await _beside(source.waiting, wanted)
    return _json({"consumers": [asdict(one) for one in consumers], "groups": asdict(waiting)})


def _json(value: Any) -> web.Response:
    return web.Response(body=msgspec.json.encode(value), content_type="application/json")
