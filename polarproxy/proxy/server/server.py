"""Listening, and an orderly end."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from polarproxy.proxy.server.connection import Connection

if TYPE_CHECKING:
    import socket

    from polarproxy.proxy.server.connection import Handler

_BACKLOG = 1024
_ABORTED_S = 10.0
"""How long requests that are broken off have to say so in the record."""


class Server:
    """Serves one handler on one listening socket."""

    def __init__(self, handler: Handler, max_body: int) -> None:
        """`max_body`: bytes that the body of a request may have."""
        self.handler = handler
        self.max_body = max_body
        self.closing = False
        self._connections: set[Connection] = set()
        self._all_gone = asyncio.Event()
        self._listening: asyncio.Server | None = None

    async def start(self, listener: socket.socket) -> None:
        """Takes connections from now on."""
        loop = asyncio.get_running_loop()
        self._listening = await loop.create_server(lambda: Connection(self), sock=listener, backlog=_BACKLOG)

    async def close(self, seconds: float) -> None:
        """Takes no more; requests under way have so many seconds to be answered, and are then broken off."""
        self.closing = True
        if self._listening is not None:
            self._listening.close()
        for connection in list(self._connections):
            connection.end()
        try:
            async with asyncio.timeout(seconds):
                await self._gone()
        except TimeoutError:
            cut = [connection.task for connection in self._connections if connection.task is not None]
            for connection in list(self._connections):
                connection.transport.abort()
            await asyncio.wait([*cut, asyncio.create_task(self._gone())], timeout=_ABORTED_S)

    async def _gone(self) -> None:
        if self._connections:
            await self._all_gone.wait()

    def opened(self, connection: Connection) -> None:
        """It is there."""
        self._connections.add(connection)
        if self.closing:
            connection.end()

    def lost(self, connection: Connection) -> None:
        """It is gone, or somebody else's."""
        self._connections.discard(connection)
        if self.closing and not self._connections:
            self._all_gone.set()
