"""The application: who may come in, and where each request goes."""

from __future__ import annotations

from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from polarproxy.errors import BadRequest, BadSpool, PolarproxyError
from polarproxy.model import Dialect
from polarproxy.proxy.address import admit, without_prefix
from polarproxy.proxy.bodies import read_body
from polarproxy.proxy.counting import serve_count
from polarproxy.proxy.exact.prompts import ExactPrompts
from polarproxy.proxy.fleet import Fleet
from polarproxy.proxy.gate import Gate
from polarproxy.proxy.generate import generate
from polarproxy.proxy.joining import Underway, question
from polarproxy.proxy.keys import Signer
from polarproxy.proxy.listing import serve_models
from polarproxy.proxy.muster import Muster
from polarproxy.proxy.outlet import HttpOutlet
from polarproxy.proxy.parts import Parts, Stats
from polarproxy.proxy.passthrough import may_pass, only_refusal, passthrough
from polarproxy.proxy.readiness import Readiness
from polarproxy.proxy.recorder import Recorder
from polarproxy.proxy.replies import refuse, refuse_for
from polarproxy.proxy.responses import serve_stored, with_earlier
from polarproxy.proxy.roots import Roots
from polarproxy.proxy.routes import NATIVE, Action, dialect_of, recognise
from polarproxy.proxy.server.response import Response
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
    from collections.abc import AsyncIterator, Awaitable, Callable

    from sqlalchemy import Engine

    from polarproxy.proxy.batches import BatchSource
    from polarproxy.proxy.carry import Carrier
    from polarproxy.proxy.control_app import Control
    from polarproxy.proxy.outlet import Outlet
    from polarproxy.proxy.server.connection import Handler
    from polarproxy.proxy.server.request import Request
    from polarproxy.settings import Settings
    from polarproxy.store.arrivals import Arrivals
    from polarproxy.store.keeper import Keeper
    from polarproxy.store.spool import Spool


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
    readiness = Readiness(arrivals if spool is None else None, writer)
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
            readiness=readiness,
            stats=stats,
            batches=batches,
            gate=gate,
            underway=Underway(),
            spool=spool,
        )
    finally:
        try:
            readiness.close()
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


def build_handler(parts: Parts, control: Control) -> Handler:
    """Answers every request, over these parts."""

    async def handle(http: Request) -> Response | None:
        answer = control.take(http) if control.takes(http) else _admitted(parts, http)
        return await _answered(answer, lambda: dialect_of(without_prefix(http.path), http.headers))

    return handle


async def _admitted(parts: Parts, http: Request) -> Response | None:
    """Raises `BadKey` for who may not come in."""
    address = admit(http.path, http.headers, http.query, parts.signer, signed_only=parts.settings.auth_required)
    path = unquote(address.route)
    if not {".", ".."}.isdisjoint(path.split("/")):
        return refuse(404, f"{path} climbs out of its own route")
    route = recognise(http.method, address.route, http.headers)
    if route is not None:
        visit = Visit(http.method, http.headers, http.query, http.raw_query, address, route)
        return await _serve_route(parts, http, visit)
    if may_pass(http.method, path):
        parts.stats.passed_through += 1
        return await passthrough(parts, http, address)
    if path.startswith("/v1/"):
        return refuse(501, f"{http.method} {path} is not offered: what it samples could not be recorded")
    return refuse(404, f"there is no route {http.method} {path}", dialect_of(address.route))


async def _serve_route(parts: Parts, http: Request, visit: Visit) -> Response | None:
    match visit.route.action:
        case Action.GENERATE:
            return await _generate(parts, http, visit)
        case Action.COUNT:
            return await serve_count(parts, visit, await read_body(http, parts.settings.max_body_mb << 20))
        case Action.MODELS | Action.MODEL:
            return await serve_models(parts, visit)
        case Action.SOCKET:
            if http.switches:
                return refuse(426, "WebSocket is switched off here; use POST", visit.route.dialect)
            return refuse(405, "use POST to make a response, or upgrade to a WebSocket", visit.route.dialect)
        case Action.RESPONSE | Action.INPUT_ITEMS | Action.CANCEL:
            return await serve_stored(parts, visit)
        case Action.HELLO:
            return Response()


async def _generate(parts: Parts, http: Request, visit: Visit) -> Response | None:
    parts.stats.calls += 1
    body = await read_body(http, parts.settings.max_body_mb << 20)
    asked = question(visit, body)
    try:
        if asked is not None:
            await parts.underway.ask(
                asked, visit, HttpOutlet(http), lambda outlet: _carrier(parts, visit, body, outlet)
            )
            return None
        carrier = await _carrier(parts, visit, body, HttpOutlet(http))
    except BadRequest as error:
        parts.stats.unreadable += 1
        if visit.route.dialect not in NATIVE:
            raise
        return await only_refusal(parts, http, visit.address, error)
    await carrier.run()
    return None


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


async def _answered(answer: Awaitable[Response | None], dialect: Callable[[], Dialect]) -> Response | None:
    """An answer, or the refusal, in a dialect, for what went wrong on the way to it."""
    try:
        return await answer
    except PolarproxyError as error:
        return refuse_for(error, dialect())
