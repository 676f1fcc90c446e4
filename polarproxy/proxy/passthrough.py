"""Routes that are relayed as they are, and not recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiohttp import web

from polarproxy.errors import EngineTimeout, EngineUnreachable
from polarproxy.proxy import headers
from polarproxy.proxy.bodies import read_body
from polarproxy.proxy.replies import refuse_for

if TYPE_CHECKING:
    from polarproxy.errors import BadRequest
    from polarproxy.proxy.parts import Parts


_GENERATES_NOTHING = frozenset(
    f"/v1/{name}" for name in ("embeddings", "rerank", "score", "classify", "pooling", "moderations")
)


def may_pass(method: str, path: str) -> bool:
    """Whether a route may go by without a record: nothing that is sampled may, and other methods than GET may sample."""
    return path.startswith("/v1/") and (method in ("GET", "HEAD", "OPTIONS") or path.rstrip("/") in _GENERATES_NOTHING)


async def only_refusal(parts: Parts, http: web.Request, route: str, why: BadRequest) -> web.StreamResponse:
    """The engine's own refusal of a request that we cannot read; raises `why` when it does not refuse it.

    What would be answered to it could not be recorded, so nobody gets to see it.
    """
    return await passthrough(parts, http, route, unless_refused=why)


async def passthrough(
    parts: Parts, http: web.Request, route: str, *, unless_refused: BadRequest | None = None
) -> web.StreamResponse:
    """Sends the request on and the answer back, bytes as they come. `route` is percent-encoded as it was sent."""
    sent = headers.to_engine(http.headers.items(), parts.settings.upstream_key)
    body = await read_body(http, parts.settings.max_body_mb << 20) if http.body_exists else None
    path = route + headers.query_to_engine(http.rel_url.raw_query_string, parts.settings.upstream_key)
    try:
        upstream = await parts.upstream.send(http.method, path, sent, body)
    except (EngineTimeout, EngineUnreachable) as error:
        return refuse_for(error)
    async with upstream:
        if unless_refused is not None and upstream.status < 400:
            raise unless_refused
        client = web.StreamResponse(status=upstream.status, headers=headers.to_client(upstream.headers))
        if "Content-Length" in upstream.headers:
            client.content_length = int(upstream.headers["Content-Length"])
        await client.prepare(http)
        try:
            async for chunk in upstream.content.iter_any():
                await client.write(chunk)
        except (EngineTimeout, EngineUnreachable):
            if http.transport is not None:
                http.transport.close()
            return client
        await client.write_eof()
        return client
