"""Routes that are relayed as they are, and not recorded."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING
from urllib.parse import unquote

import msgspec

from polarproxy.engine.models import merged
from polarproxy.errors import UNREADABLE, BadReply, EngineTimeout, EngineUnreachable
from polarproxy.proxy import headers
from polarproxy.proxy.bodies import read_body
from polarproxy.proxy.replies import refuse_for
from polarproxy.proxy.server.response import Response

if TYPE_CHECKING:
    from collections.abc import Mapping

    from polarproxy.errors import BadRequest
    from polarproxy.proxy.address import Address
    from polarproxy.proxy.http.answer import Answer
    from polarproxy.proxy.parts import Parts
    from polarproxy.proxy.server.request import Request
    from polarproxy.proxy.upstream import Upstream

_MODELS = "/v1/models"

_GENERATES_NOTHING = frozenset(
    f"/v1/{name}" for name in ("embeddings", "rerank", "score", "classify", "pooling", "moderations")
)


def may_pass(method: str, path: str) -> bool:
    """Whether a route may go by without a record: nothing that is sampled may, and other methods than GET may sample."""
    return path.startswith("/v1/") and (method in ("GET", "HEAD", "OPTIONS") or path.rstrip("/") in _GENERATES_NOTHING)


async def only_refusal(parts: Parts, http: Request, address: Address, why: BadRequest) -> Response | None:
    """The engine's own refusal of a request that we cannot read; raises `why` when it does not refuse it.

    What would be answered to it could not be recorded, so nobody gets to see it.
    """
    return await passthrough(parts, http, address, unless_refused=why)


async def passthrough(
    parts: Parts, http: Request, address: Address, *, unless_refused: BadRequest | None = None
) -> Response | None:
    """Sends the request on and the answer back, bytes as they come."""
    sent = headers.to_engine(http.headers.items(), parts.settings.upstream_key)
    body = await read_body(http, parts.settings.max_body_mb << 20) if http.has_body else None
    path = address.route + headers.query_to_engine(http.raw_query, parts.settings.upstream_key)
    model = _model(address.route, body) if parts.fleet.several else None
    try:
        if parts.fleet.several and address.route.rstrip("/") == _MODELS and http.method == "GET":
            return await _all_models(parts, path, sent)
        upstream = await parts.fleet.pass_on(address.session_id, model, http.method, path, sent, body)
    except (EngineTimeout, EngineUnreachable, BadReply) as error:
        return refuse_for(error)
    async with upstream:
        if unless_refused is not None and upstream.status < 400:
            raise unless_refused
        await _relay(upstream, http)
        return None


async def _relay(upstream: Answer, http: Request) -> None:
    length = upstream.headers.get("Content-Length")
    await http.begin(upstream.status, headers.to_client(upstream.headers), None if length is None else int(length))
    try:
        async for chunk in upstream.content.iter_any():
            await http.write(chunk)
    except (EngineTimeout, EngineUnreachable):
        http.cut()
    else:
        await http.end()


class _Asked(msgspec.Struct):
    model: str | None = None


def _model(route: str, body: bytes | None) -> str | None:
    """The model that a request is about, where several engines may serve several. None: it does not say."""
    path = unquote(route)
    if path.startswith(_MODELS + "/"):
        return path.removeprefix(_MODELS + "/")
    try:
        return msgspec.json.decode(body or b"{}", type=_Asked).model
    except UNREADABLE:
        return None


async def _all_models(parts: Parts, path: str, sent: Mapping[str, str]) -> Response:
    """What all engines together serve, or why one of them does not say."""
    asking = (_whole(member, path, sent) for member in parts.fleet.asked)
    answers = await asyncio.gather(*asking, return_exceptions=True)
    lists = [answer[1] for answer in answers if not isinstance(answer, BaseException) and answer[0] == 200]
    if lists:
        return Response.of_json(merged(lists))
    first = answers[0]
    if isinstance(first, BaseException):
        raise first
    return Response.of_json(first[1], first[0])


async def _whole(upstream: Upstream, path: str, sent: Mapping[str, str]) -> tuple[int, bytes]:
    async with await upstream.send("GET", path, sent, None) as answer:
        return answer.status, await answer.read()
