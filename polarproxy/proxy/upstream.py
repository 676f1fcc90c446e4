"""The connection to the inference engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polarproxy.proxy.http.origin import Origin
from polarproxy.proxy.http.pool import Pool

if TYPE_CHECKING:
    from collections.abc import Mapping

    from polarproxy.proxy.http.answer import Answer
    from polarproxy.settings import Settings


class Upstream:
    """One engine; keeps connections open, and closes the one of a request that is given up, which frees the engine."""

    def __init__(self, settings: Settings) -> None:
        """Raises `BadSettings` when the engine's URL names no server."""
        self.base = settings.upstream.rstrip("/").removesuffix("/v1")
        self._pool = Pool(Origin.of(self.base), settings.connect_timeout, settings.read_timeout)
        self._key = settings.upstream_key
        self.refused = False
        """Whether the engine's latest answer to us was that it wants an API key."""

    async def close(self) -> None:
        """Closes every connection."""
        await self._pool.close()

    async def send(self, method: str, path: str, headers: Mapping[str, str], body: bytes | None) -> Answer:
        """The head of the engine's answer. The caller closes it; until then it holds a connection.

        A kept connection that the engine had closed or reset meanwhile is replaced by a fresh one, once. What fails on a
        fresh connection is not tried again: the engine may have read it. Raises `EngineTimeout`, `EngineUnreachable`.
        """
        return await self._pool.send(method, path, headers, body)

    async def ask(self, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
        """Status and body of a request of our own; raises `EngineTimeout`, `EngineUnreachable`."""
        headers = {"Content-Type": "application/json"}
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        async with await self.send(method, path, headers, body) as answer:
            self.refused = answer.status in (401, 403)
            return answer.status, await answer.read()
