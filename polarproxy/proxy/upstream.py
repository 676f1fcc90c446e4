"""The connection to the inference engine."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING

import aiohttp

from polarproxy.errors import EngineTimeout, EngineUnreachable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from types import SimpleNamespace

    from polarproxy.settings import Settings

_KEEPALIVE_S = 3.0
"""Shorter than the five seconds after which uvicorn, vLLM's server, closes an idle connection."""
_READ_BUFFER = 1 << 18
_LARGE_BODY = 1 << 20


def _words(error: Exception) -> str:
    return str(error) or type(error).__name__


ENGINE_FAULTS = (TimeoutError, aiohttp.ClientError)
"""What the HTTP client raises when the engine is silent, unreachable, or gone."""


def engine_error(fault: Exception) -> EngineTimeout | EngineUnreachable:
    """The error of ours for one of `ENGINE_FAULTS`."""
    if isinstance(fault, TimeoutError):
        return EngineTimeout(f"the engine did not answer in time: {_words(fault)}")
    return EngineUnreachable(f"the engine cannot be reached: {_words(fault)}")


@asynccontextmanager
async def engine_errors() -> AsyncIterator[None]:
    """Turns what the HTTP client raises into `EngineTimeout` and `EngineUnreachable`."""
    try:
        yield
    except ENGINE_FAULTS as fault:
        raise engine_error(fault) from fault


@dataclass(slots=True)
class _Connection:
    """What is known of the connection of one request."""

    kept: bool = False
    """Whether it had served an earlier request."""


def _note_kept_connections() -> aiohttp.TraceConfig:
    async def reused(_session: aiohttp.ClientSession, context: SimpleNamespace, _parameters: object) -> None:
        context.trace_request_ctx.kept = True

    config = aiohttp.TraceConfig()
    config.on_connection_reuseconn.append(reused)
    return config


class Upstream:
    """One engine; keeps connections open, and closes the one of a request that is given up, which frees the engine."""

    def __init__(self, settings: Settings) -> None:
        self.base = settings.upstream.rstrip("/").removesuffix("/v1")
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEEPALIVE_S, ttl_dns_cache=300),
            timeout=aiohttp.ClientTimeout(
                total=None, sock_connect=settings.connect_timeout, sock_read=settings.read_timeout
            ),
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
            read_bufsize=_READ_BUFFER,
            skip_auto_headers=("User-Agent", "Accept", "Content-Type"),
            trace_configs=[_note_kept_connections()],
        )
        self._key = settings.upstream_key
        self.refused = False
        """Whether the engine's latest answer to us was that it wants an API key."""

    async def close(self) -> None:
        """Closes every connection."""
        await self._session.close()

    async def send(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes | None
    ) -> aiohttp.ClientResponse:
        """The head of the engine's answer. The caller closes it.

        A kept connection that the engine had closed or reset meanwhile is replaced by a fresh one, once. What fails on a
        fresh connection is not tried again: the engine may have read it. Raises `EngineTimeout`, `EngineUnreachable`.
        """
        url, connection = self.base + path, _Connection()
        async with engine_errors():
            try:
                return await self._request(method, url, headers, body, connection)
            except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError):
                if not connection.kept:
                    raise
                return await self._request(method, url, headers, body, _Connection())

    async def _request(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | None, connection: _Connection
    ) -> aiohttp.ClientResponse:
        # A large body goes out in pieces, so that it does not hold up the other streams.
        data = body if body is None or len(body) < _LARGE_BODY else BytesIO(body)
        return await self._session.request(
            method, url, headers=headers, data=data, allow_redirects=False, trace_request_ctx=connection
        )

    async def ask(self, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
        """Status and body of a request of our own; raises `EngineTimeout`, `EngineUnreachable`."""
        headers = {"Content-Type": "application/json"}
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        response = await self.send(method, path, headers, body)
        async with engine_errors():
            try:
                self.refused = response.status in (401, 403)
                return response.status, await response.read()
            finally:
                response.release()
