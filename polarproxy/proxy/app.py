"""The application: who may come in, and where each request goes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, TypeAlias
from urllib.parse import unquote

from aiohttp import web

from polarproxy.errors import BadKey, BadRequest, PolarproxyError
from polarproxy.proxy import control
from polarproxy.proxy.address import Address, locate, offered_keys
from polarproxy.proxy.exchange import CHAT_ROUTE, chat
from polarproxy.proxy.keys import Signer, is_session_key
from polarproxy.proxy.parts import Parts
from polarproxy.proxy.passthrough import passthrough
from polarproxy.proxy.recorder import Recorder
from polarproxy.proxy.replies import refuse, refuse_for
from polarproxy.proxy.roots import Roots
from polarproxy.proxy.upstream import Upstream
from polarproxy.store.arrivals import Arrivals
from polarproxy.store.repository import Repository
from polarproxy.store.writer import Writer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from sqlalchemy import Engine

    from polarproxy.settings import Settings

_Control: TypeAlias = Callable[[Parts, web.Request], Awaitable[web.StreamResponse]]

_CONTROL: tuple[tuple[str, str, _Control], ...] = (
    ("POST", "/api/sessions", control.make_session),
    ("GET", "/api/sessions/{session_id}", control.show_session),
    ("POST", "/api/sessions/{session_id}/close", control.close_session),
    ("POST", "/api/sessions/{session_id}/rewards", control.add_reward),
    ("POST", "/api/policy", control.set_policy),
    ("GET", "/api/stats", control.show_stats),
)


@asynccontextmanager
async def open_parts(settings: Settings, engine: Engine, secret: bytes) -> AsyncIterator[Parts]:
    """Everything a proxy needs, closed in the right order: what is queued is committed before the database goes."""
    repository = Repository(engine)
    writer = Writer(engine, settings.queue_size)
    upstream = Upstream(settings)
    arrivals = Arrivals(repository)
    try:
        yield Parts(
            settings=settings,
            signer=Signer(secret, settings.admin_key),
            upstream=upstream,
            repository=repository,
            writer=writer,
            arrivals=arrivals,
            recorder=Recorder(writer, arrivals, settings, repository.latest_policy_version()),
            roots=Roots(),
        )
    finally:
        await upstream.close()
        writer.close()


def build_app(parts: Parts) -> web.Application:
    """The aiohttp application over these parts."""
    app = web.Application(client_max_size=parts.settings.max_body_mb << 20)
    app.router.add_get("/healthz", _health)
    app.router.add_get("/readyz", partial(_ready, parts))
    for method, path, handler in _CONTROL:
        app.router.add_route(method, path, _guarded(parts, handler))
    app.router.add_route("*", "/{path:.*}", partial(_serve, parts))
    return app


async def _health(_http: web.Request) -> web.Response:
    return web.json_response({"status": "ok"})


async def _ready(parts: Parts, _http: web.Request) -> web.Response:
    """Ready when the engine answers and the store commits."""
    problems = [] if await parts.engine_answers() else [parts.engine_trouble()]
    if parts.writer.trouble is not None:
        problems.append(f"the store cannot commit: {parts.writer.trouble}")
    facts = await parts.engine_facts()
    state = {"engine": facts.name, "model": facts.model, "problems": problems}
    return web.json_response(state, status=503 if problems else 200)


def _guarded(parts: Parts, handler: _Control) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    """A control route: for the admin key, or for anybody on a loopback address without a session key."""

    async def guarded(http: web.Request) -> web.StreamResponse:
        keys = offered_keys(http.headers, http.query)
        needed = parts.settings.auth_required or parts.settings.admin_key is not None
        if any(map(parts.signer.is_admin, keys)):
            needed = False
        elif any(map(is_session_key, keys)):
            return refuse(403, "a session key opens model routes only; control routes take the admin key")
        if needed:
            return refuse(401, "control routes take the admin key: Authorization: Bearer <admin key>")
        return await _answered(handler(parts, http))

    return guarded


async def _serve(parts: Parts, http: web.Request) -> web.StreamResponse:
    """A model route."""
    try:
        address = locate(http.rel_url.raw_path, http.headers, http.query, parts.signer)
    except BadKey as error:
        return refuse_for(error)
    if parts.settings.auth_required and not address.signed:
        return refuse(401, "this proxy serves signed session keys only; POST /api/sessions returns one")
    return await _answered(_dispatch(parts, http, address))


async def _dispatch(parts: Parts, http: web.Request, address: Address) -> web.StreamResponse:
    route = unquote(address.route)
    if not {".", ".."}.isdisjoint(route.split("/")):
        return refuse(404, f"{route} climbs out of its own route")
    # A slash too many makes the engine redirect its client to itself, past the record.
    if route.rstrip("/") == CHAT_ROUTE and http.method == "POST":
        parts.stats.calls += 1
        try:
            return await chat(parts, http, address)
        except BadRequest:
            parts.stats.unreadable += 1
            return await passthrough(parts, http, address.route)
    if route.startswith("/v1/"):
        parts.stats.passed_through += 1
        return await passthrough(parts, http, address.route)
    return refuse(404, f"there is no route {http.method} {route}")


async def _answered(answer: Awaitable[web.StreamResponse]) -> web.StreamResponse:
    """An answer, or the refusal for what went wrong on the way to it."""
    try:
        return await answer
    except PolarproxyError as error:
        return refuse_for(error)
    except web.HTTPRequestEntityTooLarge as error:
        return refuse(413, f"the request body is too large: {error.text}")
