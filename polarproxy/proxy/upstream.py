"""The connection to the inference engine."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import aiohttp

from polarproxy.errors import EngineTimeout, EngineUnreachable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from polarproxy.settings import Settings

_KEEPALIVE_S = 3.0
"""Shorter than the five seconds after which uvicorn, vLLM's server, closes an idle connection."""
_READ_BUFFER = 1 << 18


def _words(error: Exception) -> str:
    return str(error) or type(error).__name__


@asynccontextmanager
async def engine_errors() -> AsyncIterator[None]:
    """Turns what the HTTP client raises into `EngineTimeout` and `EngineUnreachable`."""
    try:
        yield
    except (aiohttp.ServerTimeoutError, TimeoutError) as error:
        raise EngineTimeout(f"the engine did not answer in time: {_words(error)}") from error
    except aiohttp.ClientError as error:
        raise EngineUnreachable(f"the engine cannot be reached: {_words(error)}") from error


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
        )
        self._key = settings.upstream_key

    async def close(self) -> None:
        """Closes every connection."""
        await self._session.close()

    async def send(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes | None
    ) -> aiohttp.ClientResponse:
        """The head of the engine's answer. The caller closes it.

        A connection that the engine had closed or reset meanwhile is tried once more on a fresh one; the engine has read
        nothing.
        Raises `EngineTimeout`, `EngineUnreachable`.
        """
        url = self.base + path
        async with engine_errors():
            try:
                return await self._session.request(method, url, headers=headers, data=body, allow_redirects=False)
            except aiohttp.ClientConnectorError:
                raise
            except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError):
                await asyncio.sleep(0)
                return await self._session.request(method, url, headers=headers, data=body, allow_redirects=False)

    async def ask(self, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
        """Status and body of a request of our own; raises `EngineTimeout`, `EngineUnreachable`."""
        headers = {"Content-Type": "application/json"}
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        response = await self.send(method, path, headers, body)
        async with engine_errors():
            try:
                return response.status, await response.read()
            finally:
                response.release()
