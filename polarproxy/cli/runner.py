"""Running a proxy in this process: the parts, a listening socket, and an orderly end."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, closing
from functools import cache, partial
from typing import TYPE_CHECKING

from polarproxy.cli.delegating import delegating
from polarproxy.cli.desks import desk
from polarproxy.cli.rollouts import NO_TASKS, RolloutService
from polarproxy.cli.secrets import signing_key
from polarproxy.cli.workers import listen
from polarproxy.proxy.app import build_handler, open_parts
from polarproxy.proxy.control_app import Control
from polarproxy.proxy.server.server import Server
from polarproxy.store.database import open_database
from polarproxy.store.migrate import upgrade

if TYPE_CHECKING:
    import socket
    from collections.abc import AsyncIterator, Sequence

    from sqlalchemy import Engine

    from polarproxy.cli.workers import Worker
    from polarproxy.proxy.control_app import Route
    from polarproxy.proxy.parts import Parts
    from polarproxy.settings import Settings

_SHUTDOWN_S = 30.0


def base_url(listener: socket.socket) -> str:
    """Where clients on this machine find it."""
    host, port = listener.getsockname()[:2]
    return f"http://{'[' + host + ']' if ':' in host else host}:{port}"


@asynccontextmanager
async def running_proxy(settings: Settings, worker: Worker | None = None) -> AsyncIterator[tuple[str, Parts]]:
    """A proxy that serves until the block ends. Gives its base URL and its parts. `worker` None: it is the only one here.

    Raises `BadSettings`, `WrongDatabase` when it cannot start.
    """
    engine = open_database(settings.db, create=True)
    try:
        upgrade(engine)
        async with _serving(settings, engine, worker) as running:
            yield running
    finally:
        engine.dispose()


@asynccontextmanager
async def _serving(settings: Settings, engine: Engine, worker: Worker | None) -> AsyncIterator[tuple[str, Parts]]:
    secret = signing_key(settings)
    listener = listen(settings.host, settings.port) if worker is None else worker.listener
    number = None if worker is None else worker.number
    with closing(listener):
        async with (
            open_parts(settings, engine, secret, cache(partial(desk, engine)), worker=number) as parts,
            _with_tasks(parts, engine, listener),
        ):
            yield base_url(listener), parts


@asynccontextmanager
async def _with_tasks(parts: Parts, engine: Engine, listener: socket.socket) -> AsyncIterator[None]:
    """Serves, and runs tasks if that is wanted. What runs is ended while the proxy still answers."""
    if not parts.settings.rollouts:
        async with _answering(parts, listener, NO_TASKS):
            yield
        return
    base = base_url(listener)
    service = RolloutService(parts, engine, base)
    async with _answering(parts, listener, service.routes), service.running(), delegating(parts, service, base):
        yield


@asynccontextmanager
async def _answering(parts: Parts, listener: socket.socket, more: Sequence[Route]) -> AsyncIterator[None]:
    control = Control(parts, _SHUTDOWN_S, more)
    await control.start()
    server = Server(build_handler(parts, control), parts.settings.max_body_mb << 20)
    await server.start(listener)
    try:
        yield
    finally:
        await asyncio.gather(server.close(_SHUTDOWN_S), control.close())
