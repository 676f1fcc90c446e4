"""Connections to one engine, kept open between requests for as long as it is likely to keep them too."""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from functools import cached_property
from typing import TYPE_CHECKING

from polarproxy.errors import EngineTimeout, EngineUnreachable
from polarproxy.proxy.http.connection import Connection

if TYPE_CHECKING:
    from collections.abc import Mapping

    from polarproxy.proxy.http.answer import Answer
    from polarproxy.proxy.http.origin import Origin

KEEP_S = 3.0
"""How long an idle connection is kept: less than the five seconds after which uvicorn, vLLM's server, closes it."""
_STALE_S = 0.25
"""A kept connection that is lost so soon after a request went out was closed before the engine saw the request."""
_CLOSING_S = 1.0
_ROOM = 1 << 18
"""Bytes that are read at once, at most."""


class Pool:
    """All connections to one server."""

    def __init__(self, origin: Origin, connect_timeout: float, read_timeout: float) -> None:
        self._origin = origin
        self._connect_timeout = connect_timeout
        self._read_timeout = read_timeout
        # A view, of which asyncio takes slices; those of a bytearray would be copies.
        self.room = memoryview(bytearray(_ROOM))
        self._open: set[Connection] = set()
        self._idle: deque[Connection] = deque()
        """The one that was used last is at the right."""
        self._sweep: asyncio.TimerHandle | None = None
        self._all_closed: asyncio.Event | None = None
        self.clients = 0
        """Requests of clients that are under way: from before there is a connection to the last byte of the answer."""

    async def send(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes | None, *, for_client: bool = False
    ) -> Answer:
        """The head of the engine's answer, which the caller releases.

        A kept connection that the engine had closed or reset meanwhile is replaced by a fresh one, once. What fails later,
        or on a fresh connection, is not tried again: the engine may be sampling it. Raises `EngineTimeout` and
        `EngineUnreachable`, which tell whether anything was sent, and `ValueError` when a header holds a line break.
        """
        head = self._origin.head(method, path, headers, body)
        kept = self._kept()
        if kept is not None:
            clock = asyncio.get_running_loop().time
            asked_at = clock()
            try:
                return await self._exchange(kept, method, head, body, for_client=for_client)
            except EngineUnreachable:
                if kept.heard or self._all_closed is not None or clock() - asked_at > _STALE_S:
                    raise
        self.clients += for_client
        fresh = Connection(self, self._read_timeout)
        try:
            await self._connect(fresh, sent=kept is not None)
        except BaseException:
            # It may be there all the same: uvloop ends one without a word whose asker leaves, or gives up, just then.
            self.lost(fresh)
            raise
        finally:
            self.clients -= for_client
        return await self._exchange(fresh, method, head, body, for_client=for_client)

    async def _exchange(
        self, connection: Connection, method: str, head: bytes, body: bytes | None, *, for_client: bool
    ) -> Answer:
        connection.client = client = object() if for_client else None
        self.clients += for_client
        try:
            return await connection.exchange(method, head, body)
        except BaseException:
            # By now the connection may serve another request.
            if connection.client is client:
                self._served(connection)
            raise

    def _served(self, connection: Connection) -> None:
        if connection.client is not None:
            connection.client = None
            self.clients -= 1

    def _kept(self) -> Connection | None:
        now = asyncio.get_running_loop().time()
        while self._idle:
            connection = self._idle.pop()
            if now - connection.idle_since > KEEP_S:
                connection.close()
            elif connection.usable:
                return connection
        return None

    async def _connect(self, connection: Connection, *, sent: bool) -> None:
        """`sent`: whether the request has gone out on another connection."""
        origin = self._origin
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._connect_timeout):
                await loop.create_connection(
                    lambda: connection,
                    origin.host,
                    origin.port,
                    ssl=self._tls if origin.secure else None,
                    server_hostname=origin.host if origin.secure else None,
                )
        except TimeoutError as error:
            late = f"the engine at {origin} took no connection in {self._connect_timeout:g} s"
            raise EngineTimeout(late, sent=sent) from error
        except OSError as error:
            why = f"the engine cannot be reached at {origin}: {error.strerror or error}"
            raise EngineUnreachable(why, sent=sent) from error

    @cached_property
    def _tls(self) -> ssl.SSLContext:
        context = ssl.create_default_context()
        context.set_alpn_protocols(["http/1.1"])
        return context

    def opened(self, connection: Connection) -> None:
        """The connection is there."""
        self._open.add(connection)

    def idle(self, connection: Connection) -> None:
        """The connection can serve another request."""
        self._served(connection)
        loop = asyncio.get_running_loop()
        connection.idle_since = loop.time()
        self._idle.append(connection)
        if self._sweep is None:
            self._sweep = loop.call_later(KEEP_S, self._close_old)

    def _close_old(self) -> None:
        loop = asyncio.get_running_loop()
        oldest_kept = loop.time() - KEEP_S
        while self._idle and self._idle[0].idle_since <= oldest_kept:
            self._idle.popleft().close()
        self._sweep = None
        if self._idle:
            self._sweep = loop.call_later(self._idle[0].idle_since - oldest_kept, self._close_old)

    def lost(self, connection: Connection) -> None:
        """The connection is closed."""
        self._served(connection)
        self._open.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)
        if self._all_closed is not None and not self._open:
            self._all_closed.set()

    async def close(self) -> None:
        """Closes every connection, also those with an answer under way."""
        if self._sweep is not None:
            self._sweep.cancel()
        self._all_closed = asyncio.Event()
        if not self._open:
            return
        for connection in list(self._open):
            connection.close()
        async with asyncio.timeout(_CLOSING_S):
            await self._all_closed.wait()
