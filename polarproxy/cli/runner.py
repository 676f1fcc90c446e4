"""Running a proxy in this process: the parts, a listening socket, and an orderly end."""

from __future__ import annotations

import socket
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from aiohttp import web

from polarproxy.cli.secrets import signing_key
from polarproxy.errors import BadSettings
from polarproxy.proxy.app import build_app, open_parts
from polarproxy.store.database import open_database
from polarproxy.store.migrate import upgrade

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from sqlalchemy import Engine

    from polarproxy.proxy.parts import Parts
    from polarproxy.settings import Settings

_SHUTDOWN_S = 30.0


def _listen(settings: Settings) -> socket.socket:
    try:
        return socket.create_server((settings.host, settings.port), backlog=1024)
    except OSError as error:
        raise BadSettings(f"cannot listen on {settings.host}:{settings.port}: {error.strerror}") from error


@asynccontextmanager
async def running_proxy(settings: Settings) -> AsyncIterator[tuple[str, Parts]]:
    """A proxy that serves until the block ends. Gives its base URL and its parts.

    Raises `BadSettings`, `WrongDatabase` when it cannot start.
    """
    engine = open_database(settings.db, create=True)
    try:
        upgrade(engine)
        async with _serving(settings, engine, signing_key(settings)) as running:
            yield running
    finally:
        engine.dispose()


@asynccontextmanager
async def _serving(settings: Settings, engine: Engine, secret: bytes) -> AsyncIterator[tuple[str, Parts]]:
    listener = _listen(settings)
    async with open_parts(settings, engine, secret) as parts:
        # A handler is cancelled when its client leaves: that is how the engine is freed at once.
        # Bodies are decompressed by us, within the limit for their size.
        runner = web.AppRunner(
            build_app(parts),
            handler_cancellation=True,
            access_log=None,
            shutdown_timeout=_SHUTDOWN_S,
            auto_decompress=False,
        )
        await runner.setup()
        await web.SockSite(runner, listener).start()
        host, port = listener.getsockname()[:2]
        try:
            yield f"http://{'[' + host + ']' if ':' in host else host}:{port}", parts
        finally:
            await runner.cleanup()
