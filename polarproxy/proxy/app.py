"""The application: who may come in, and where each request goes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias
from urllib.parse import unquote

from aiohttp import web

from polarproxy.errors import BadKey, BadRequest, BadSpool, PolarproxyError
from polarproxy.model import Dialect
from polarproxy.proxy import batches as batch_routes
from polarproxy.proxy import control, fleet_control, pausing
from polarproxy.proxy.address import Address, locate, offered_keys, without_prefix
from polarproxy.proxy.bodies import read_body
from polarproxy.proxy.counting import serve_count
from polarproxy.proxy.exact.prompts import ExactPrompts
from polarproxy.proxy.fleet import Fleet
from polarproxy.proxy.forced import ForcedSampling
from polarproxy.proxy.gate import Gate
from polarproxy.proxy.generate import generate
from polarproxy.proxy.joining import Underway, question
from polarproxy.proxy.keys import Signer, is_session_key
from polarproxy.proxy.listing import serve_models
from polarproxy.proxy.muster import Muster
from polarproxy.proxy.outlet import HttpOutlet
from polarproxy.proxy.parts import Parts, Stats
from polarproxy.proxy.passthrough import may_pass, only_refusal, passthrough
from polarproxy.proxy.recorder import Recorder
from polarproxy.proxy.replies import refuse, refuse_for
from polarproxy.proxy.responses import serve_stored, with_earlier
from polarproxy.proxy.roots import Roots
from polarproxy.proxy.routes import NATIVE, Action, dialect_of, recognise
from polarproxy.proxy.socket import is_upgrade, serve_socket
from polarproxy.proxy.visit import Said, Visit
from polarproxy.store.arrivals import arrivals_of
from polarproxy.store.database import name_of
from polarproxy.store.repository import Repository
from polarproxy.store.spool_files import spool_folder
from polarproxy.store.spool_opening import open_spool, warn_of_strays
from polarproxy.store.spooling import SpoolingWriter, patience
from polarproxy.store.writer import Writer
from polarproxy.wire.responses.items import read_head
from polarproxy.wire.surrogates import whole_characters

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from sqlalchemy import Engine

    from polarproxy.proxy.batches import BatchSource
    from polarproxy.proxy.carry import Carrier
    from polarproxy.proxy.outlet import Outlet
    from polarproxy.settings import Settings
    from polarproxy.store.arrivals import Arrivals
    from polarproxy.store.keeper import Keeper
    from polarproxy.store.spool import Spool

_Control: TypeAlias = Callable[[Parts, web.Request], Awaitable[web.StreamResponse]]
Route: TypeAlias = tuple[str, str, Callable[[web.Request], Awaitable[web.StreamResponse]]]
"""Method, path and handler of a control route that is not the proxy's own."""

_CONTROL: tuple[tuple[str, str, _Control], ...] = (
    ("POST", "/api/sessions", control.make_session),
    ("GET", "/api/sessions/{session_id}", control.show_session),
    ("POST", "/api/sessions/{session_id}/close", control.close_session),
    ("POST", "/api/sessions/{session_id}/rewards", control.add_reward),
    ("GET", "/api/sessions/{session_id}/rewards", control.show_rewards),
    ("POST", "/api/policy", control.set_policy),
    ("GET", "/api/generation", pausing.show),
    ("POST", "/api/generation/pause", pausing.pause),
    ("POST", "/api/generation/resume", pausing.resume),
    ("GET", "/api/stats", control.show_stats),
    ("GET", "/api/batches", batch_routes.show_batches),
    ("GET", "/api/batches/next", batch_routes.next_batch),
    ("POST", "/api/batches/{lease_id}/ack", batch_routes.acknowledge),
    ("POST", "/api/batches/{lease_id}/release", batch_routes.release),
    ("GET", "/api/upstreams", fleet_control.list_upstreams),
    ("POST", "/api/upstreams", fleet_control.add_upstream),
    ("POST", "/api/upstreams/{id}/drain", fleet_control.drain_upstream),
    ("DELETE", "/api/upstreams/{id}", fleet_control.remove_upstream),
)


@asynccontextmanager
async def open_parts(
    settings: Settings,
    engine: Engine,
    secret: bytes,
    batches: Callable[[], BatchSource],
    *,
    worker: int | None = None,
) -> AsyncIterator[Parts]:
    """Everything a proxy needs, closed in the right order: what is queued is committed before the database goes.

    `worker`: its number among the processes of one port. None: it is the only one.
    """
    repository = Repository(engine)
    spool = _spool(settings, worker)
    fleet, stats = Fleet(settings), Stats()
    exact = ExactPrompts(repository)
    timeout = settings.store_timeout if spool is None else patience(settings.store_timeout)
    arrivals = arrivals_of(engine, repository, timeout, spool)
    writer = _keeper(settings, engine, spool, arrivals)
    gate = Gate(settings.pause_limit)
    muster = Muster(engine, fleet, writer, stats, exact, gate, worker)
    try:
        latest = max(settings.policy_version, repository.latest_policy_version())
        arrivals.policy_version = repository.set_policy_version(latest)
        fleet.start()
        await muster.start()
        yield Parts(
            settings=settings,
            signer=Signer(secret, settings.admin_key),
            fleet=fleet,
            repository=repository,
            writer=writer,
            arrivals=arrivals,
            recorder=Recorder(writer, arrivals, settings),
            roots=Roots(),
            exact=exact,
            muster=muster,
            stats=stats,
            batches=batches,
            gate=gate,
            forced=ForcedSampling(repository),
            underway=Underway(),
            spool=spool,
        )
    finally:
        try:
            await muster.close()
            await fleet.close()
        finally:
            writer.close()


def _spool(settings: Settings, worker: int | None) -> Spool | None:
    """Each worker has one of its own; the first one says what nobody looks after."""
    if settings.spool is None:
        return None
    numbers = (None,) if worker is None else range(1, settings.workers + 1)
    if worker in (None, 1):
        warn_of_strays(Path(settings.spool), numbers)
    return open_spool(spool_folder(Path(settings.spool), worker), name_of(settings.db))


def _keeper(settings: Settings, engine: Engine, spool: Spool | None, arrivals: Arrivals) -> Keeper:
    writer = Writer(engine, settings.queue_size)
    if spool is None:
        return writer
    try:
        return SpoolingWriter(writer, spool, arrivals, engine, settings.queue_size)
    except BadSpool:
        writer.close()
        spool.close()
        raise


def build_app(parts: Parts, more: Sequence[Route] = ()) -> web.Application:
    """The aiohttp application over these parts. `more`: control routes of others, guarded as our own are."""
    app = web.Application(client_max_size=parts.settings.max_body_mb << 20)
    app.on_shutdown.append(partial(_end, parts))
    app.router.add_get("/healthz", _health)
    app.router.add_get("/readyz", partial(_ready, parts))
    for method, path, handler in _CONTROL:
        app.router.add_route(method, path, _guarded(parts, handler))
    for method, path, other in more:
        app.router.add_route(method, path, _guarded(parts, partial(_ours, other)))
    app.router.add_route("*", "/{path:.*}", partial(_serve, parts))
    return app


async def _end(parts: Parts, _app: web.Application) -> None:
    parts.ending.set()


async def _ours(
    other: Callable[[web.Request], Awaitable[web.StreamResponse]], _parts: Parts, http: web.Request
) -> web.StreamResponse:
    return await other(http)


async def _health(_http: web.Request) -> web.Response:
    return web.json_response({"status": "ok"})


async def _ready(parts: Parts, _http: web.Request) -> web.Response:
    """Ready when an engine answers and calls can be made durable, by the store or by the spool."""
    problems = [] if await parts.fleet.look() else [member.why_unknown() for member in parts.fleet.members]
    warnings = [] if problems else [*parts.fleet.troubles(), *parts.fleet.differences()]
    if parts.writer.trouble is not None:
        problems.append(f"the store cannot commit: {parts.writer.trouble}")
    if parts.spool is not None:
        warnings += parts.spool.warnings
    facts = await parts.fleet.facts()
    state = {"engine": facts.name, "model": facts.model, "problems": problems, "warnings": warnings}
    return web.json_response(state | control.spool_state(parts), status=503 if problems else 200)


def _guarded(parts: Parts, handler: _Control) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    """A control route: for the admin key, or for anybody on a loopback address without a session key."""

    async def guarded(http: web.Request) -> web.StreamResponse:
        keys = offered_keys(http.headers, http.query)
        if not any(map(parts.signer.is_admin, keys)):
            if any(map(is_session_key, keys)):
                return refuse(403, "a session key opens model routes only; control routes take the admin key")
            if not parts.settings.control_open:
                return refuse(401, "control routes take the admin key: Authorization: Bearer <admin key>")
            if _is_of_foreign_page(http):
                return refuse(403, "control routes are not for web pages of other sites; use the admin key")
        return await _answered(handler(parts, http))

    return guarded


def _is_of_foreign_page(http: web.Request) -> bool:
    """Whether a browser sends this for a page of another site, which could add an engine and read what it is asked."""
    origin = http.headers.get("Origin")
    return origin is not None and origin.partition("://")[2] != http.host


async def _serve(parts: Parts, http: web.Request) -> web.StreamResponse:
    """A model route."""
    return await _answered(
        _admitted(parts, http), lambda: dialect_of(without_prefix(http.rel_url.raw_path), http.headers)
    )


async def _admitted(parts: Parts, http: web.Request) -> web.StreamResponse:
    """Raises `BadKey` for who may not come in."""
    address = locate(http.rel_url.raw_path, http.headers, http.query, parts.signer)
    if parts.settings.auth_required and not address.signed:
        raise BadKey("this proxy serves signed session keys only; POST /api/sessions returns one")
    return await _dispatch(parts, http, address)


async def _dispatch(parts: Parts, http: web.Request, address: Address) -> web.StreamResponse:
    path = unquote(address.route)
    if not {".", ".."}.isdisjoint(path.split("/")):
        return refuse(404, f"{path} climbs out of its own route")
    route = recognise(http.method, address.route, http.headers)
    if route is not None:
        return await _serve_route(parts, Visit(http, address, route))
    if may_pass(http.method, path):
        parts.stats.passed_through += 1
        return await passthrough(parts, http, address)
    if path.startswith("/v1/"):
        return refuse(501, f"{http.method} {path} is not offered: what it samples could not be recorded")
    return refuse(404, f"there is no route {http.method} {path}", dialect_of(address.route))


async def _serve_route(parts: Parts, visit: Visit) -> web.StreamResponse:
    match visit.route.action:
        case Action.GENERATE:
            return await _generate(parts, visit)
        case Action.COUNT:
            return await serve_count(parts, visit, await read_body(visit.http, parts.settings.max_body_mb << 20))
        case Action.MODELS | Action.MODEL:
            return await serve_models(parts, visit)
        case Action.SOCKET:
            if is_upgrade(visit.http):
                return await serve_socket(parts, visit)
            return refuse(405, "use POST to make a response, or upgrade to a WebSocket", visit.route.dialect)
        case Action.RESPONSE | Action.INPUT_ITEMS | Action.CANCEL:
            return await serve_stored(parts, visit)
        case Action.HELLO:
            return web.Response()


async def _generate(parts: Parts, visit: Visit) -> web.StreamResponse:
    parts.stats.calls += 1
    body = await read_body(visit.http, parts.settings.max_body_mb << 20)
    asked = question(visit, body)
    try:
        if asked is not None:
            return await parts.underway.ask(asked, visit, lambda outlet: _carrier(parts, visit, body, outlet))
        carrier = await _carrier(parts, visit, body, HttpOutlet(visit.http))
    except BadRequest as error:
        parts.stats.unreadable += 1
        if visit.route.dialect not in NATIVE:
            raise
        return await only_refusal(parts, visit.http, visit.address, error)
    return await carrier.run()


async def _carrier(parts: Parts, visit: Visit, body: bytes, outlet: Outlet) -> Carrier:
    """Of the request as it came; where it cannot be read, as a lenient server would read it."""
    try:
        return await generate(parts, visit, outlet, await _said(parts, visit, body))
    except BadRequest:
        whole = whole_characters(body)
        if whole is None:
            raise
        return await generate(parts, visit, outlet, await _said(parts, visit, whole, body))


async def _said(parts: Parts, visit: Visit, body: bytes, sent: bytes | None = None) -> Said:
    """`sent`: the body as it came, when it had to be mended."""
    if visit.route.dialect is not Dialect.RESPONSES:
        return Said(body, body, sent=sent)
    return await with_earlier(parts, visit, body, read_head(body), sent=sent)


async def _answered(
    answer: Awaitable[web.StreamResponse], dialect: Callable[[], Dialect] = lambda: Dialect.CHAT
) -> web.StreamResponse:
    """An answer, or the refusal, in a dialect, for what went wrong on the way to it."""
    try:
        return await answer
    except PolarproxyError as error:
        return refuse_for(error, dialect())
    except web.HTTPRequestEntityTooLarge as error:
        return refuse(413, f"the request body is too large: {error.text}", dialect())
