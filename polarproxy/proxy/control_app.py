"""What aiohttp serves: the control API, routes of others, and WebSockets.

Our own server (`server/`) takes every connection, and hands over those whose next request is none of a model over HTTP. Such a
connection ends with that request, or with its WebSocket.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from aiohttp import web

from polarproxy.errors import PolarproxyError
from polarproxy.model import Dialect
from polarproxy.proxy import batches as batch_routes
from polarproxy.proxy import control, fleet_control, pausing
from polarproxy.proxy.address import admit, offered_keys, without_prefix
from polarproxy.proxy.keys import is_session_key
from polarproxy.proxy.parts import Parts
from polarproxy.proxy.replies import refuse, refuse_for
from polarproxy.proxy.routes import Action, dialect_of, recognise
from polarproxy.proxy.socket import is_upgrade, serve_socket
from polarproxy.proxy.visit import Visit

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from polarproxy.proxy.server.request import Request
    from polarproxy.proxy.server.response import Response

_Control: TypeAlias = Callable[[Parts, web.Request], Awaitable[web.StreamResponse]]
Route: TypeAlias = tuple[str, str, Callable[[web.Request], Awaitable[web.StreamResponse]]]
"""Method, path and handler of a control route that is not the proxy's own."""

_OPEN = ("/healthz", "/readyz", "/api/hello")
"""For everybody."""
_CONTROL: tuple[tuple[str, str, _Control], ...] = (
    ("POST", "/api/sessions", control.make_session),
    ("POST", "/api/sessions/close", control.close_sessions),
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


class Control:
    """The aiohttp application over these parts, once it is started and until it is closed."""

    def __init__(self, parts: Parts, seconds: float, more: Sequence[Route] = ()) -> None:
        """`seconds`: how long requests that are under way in the end may take. `more`: control routes of others, guarded as
        our own are."""
        self._parts = parts
        app = _app(parts, more)
        self._firsts = {_first(resource.canonical) for resource in app.router.resources()}
        app.router.add_route("*", "/{path:.*}", partial(_socket, parts))
        # A handler is cancelled when its client leaves. Bodies are decompressed by us, within the limit for their size.
        self._runner = web.AppRunner(
            app, handler_cancellation=True, access_log=None, shutdown_timeout=seconds, auto_decompress=False
        )

    async def start(self) -> None:
        """Must come before the first request."""
        await self._runner.setup()

    async def close(self) -> None:
        """Lets go who only waits, and gives the others their time."""
        await self._runner.cleanup()

    def takes(self, http: Request) -> bool:
        """Whether a request is for it."""
        return _first(http.path) in self._firsts or (self._parts.settings.websocket and http.switches)

    async def take(self, http: Request) -> Response | None:
        """Has it answered. Who may not use a control route is refused before the body is read. Raises `TooLarge`."""
        if http.path not in _OPEN and _first(http.path) in self._firsts:
            refused = _refusal(self._parts, http.headers, http.query, http.host)
            if refused is not None:
                return refused
        body = None if http.switches else await http.read()
        server = self._runner.server
        if server is None:
            http.cut()
        else:
            http.hand_over(server(), body)
        return None


def _first(path: str) -> str:
    """The first part of a path."""
    return path.partition("/")[2].partition("/")[0]


def _app(parts: Parts, more: Sequence[Route]) -> web.Application:
    app = web.Application(client_max_size=parts.settings.max_body_mb << 20)
    app.on_shutdown.append(partial(_end, parts))
    app.router.add_get("/healthz", _health)
    app.router.add_get("/readyz", partial(_ready, parts))
    app.router.add_route("HEAD", "/api/hello", _hello)
    for method, path, handler in _CONTROL:
        app.router.add_route(method, path, _guarded(parts, handler))
    for method, path, other in more:
        app.router.add_route(method, path, _guarded(parts, partial(_ours, other)))
    return app


async def _end(parts: Parts, _app: web.Application) -> None:
    parts.ending.set()


async def _ours(
    other: Callable[[web.Request], Awaitable[web.StreamResponse]], _parts: Parts, http: web.Request
) -> web.StreamResponse:
    return await other(http)


async def _hello(_http: web.Request) -> web.Response:
    """Claude Code's probe whether anybody is there."""
    return web.Response()


async def _health(_http: web.Request) -> web.Response:
    return web.json_response({"status": "ok"})


async def _ready(parts: Parts, _http: web.Request) -> web.Response:
    """Ready when an engine answers and calls are given places and made durable, by the store or by the spool."""
    answers, store = await asyncio.gather(parts.fleet.look(), parts.readiness.problems())
    problems = [] if answers else [member.why_unknown() for member in parts.fleet.members]
    warnings = [] if problems else [*parts.fleet.troubles(), *parts.fleet.differences()]
    problems += store
    if parts.spool is not None:
        warnings += parts.spool.warnings
    facts = await parts.fleet.facts()
    state = {"engine": facts.name, "model": facts.model, "problems": problems, "warnings": warnings}
    return web.json_response(state | control.spool_state(parts), status=503 if problems else 200)


def _guarded(parts: Parts, handler: _Control) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    async def guarded(http: web.Request) -> web.StreamResponse:
        refused = _refusal(parts, http.headers, http.query, http.host)
        return await _answered(handler(parts, http)) if refused is None else as_web(refused)

    return guarded


def _refusal(parts: Parts, headers: Mapping[str, str], query: Mapping[str, str], host: str) -> Response | None:
    """Control routes are for the admin key, or for anybody on a loopback address without a session key. None: come in."""
    keys = offered_keys(headers, query)
    if any(map(parts.signer.is_admin, keys)):
        return None
    if any(map(is_session_key, keys)):
        return refuse(403, "a session key opens model routes only; control routes take the admin key")
    if not parts.settings.control_open:
        return refuse(401, "control routes take the admin key: Authorization: Bearer <admin key>")
    # A browser sends this for a page of another site, which could add an engine and read what it is asked.
    origin = headers.get("Origin")
    if origin is not None and origin.partition("://")[2] != host:
        return refuse(403, "control routes are not for web pages of other sites; use the admin key")
    return None


async def _socket(parts: Parts, http: web.Request) -> web.StreamResponse:
    """A WebSocket, for who may have one."""
    path = http.rel_url.raw_path
    try:
        answer = await _answered(_opened(parts, http, path), lambda: dialect_of(without_prefix(path), http.headers))
    except web.HTTPException as refused:
        refused.force_close()
        raise
    if not isinstance(answer, web.WebSocketResponse):
        # The next request is one for our own server.
        answer.force_close()
    return answer


async def _opened(parts: Parts, http: web.Request, path: str) -> web.StreamResponse:
    address = admit(path, http.headers, http.query, parts.signer, signed_only=parts.settings.auth_required)
    route = recognise(http.method, address.route, http.headers)
    if route is None or route.action is not Action.SOCKET or not is_upgrade(http.headers):
        return as_web(refuse(404, f"there is no route {http.method} {http.path}", dialect_of(address.route)))
    visit = Visit(http.method, http.headers, http.query, http.rel_url.raw_query_string, address, route)
    return await serve_socket(parts, visit, http)


async def _answered(
    answer: Awaitable[web.StreamResponse], dialect: Callable[[], Dialect] = lambda: Dialect.CHAT
) -> web.StreamResponse:
    """An answer, or the refusal, in a dialect, for what went wrong on the way to it."""
    try:
        return await answer
    except PolarproxyError as error:
        return as_web(refuse_for(error, dialect()))


def as_web(response: Response) -> web.Response:
    """An answer of our own server as one of aiohttp's."""
    return web.Response(status=response.status, headers=response.headers, body=response.body)
