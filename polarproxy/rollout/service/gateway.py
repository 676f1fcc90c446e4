"""The proxy as the service sees it: its control routes, over HTTP, wherever it runs."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Self

import aiohttp
import msgspec

from polarproxy.errors import ProxyRefused

if TYPE_CHECKING:
    from collections.abc import Mapping

    from polarproxy.model import Reward, SessionStatus

_PATIENCE_S = 60.0


class _Session(msgspec.Struct):
    session_id: str
    api_key: str


class _Closed(msgspec.Struct):
    unknown: list[str]


class _Generation(msgspec.Struct):
    paused: bool


class Gateway:
    """Open while the `async with` block lasts. Every method raises `ProxyRefused` when the proxy does not do its part."""

    def __init__(self, base: str, admin_key: str | None = None) -> None:
        self.base = base
        headers = {} if admin_key is None else {"Authorization": f"Bearer {admin_key}"}
        self._headers = headers
        self._http: aiohttp.ClientSession | None = None
        self._ending: dict[str, SessionStatus] = {}
        self._end_turn = asyncio.Lock()
        self._unknown: set[str] = set()

    async def __aenter__(self) -> Self:
        # As many as there are rollouts: each says a few words at its beginning and at its end.
        self._http = aiohttp.ClientSession(
            headers=self._headers,
            connector=aiohttp.TCPConnector(limit=32),
            timeout=aiohttp.ClientTimeout(total=_PATIENCE_S),
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._http is not None:
            await self._http.close()

    async def open_session(self, session_id: str, wanted: Mapping[str, Any]) -> str:
        """Makes a session; its key."""
        answer = await self._ask("POST", "/api/sessions", {"session_id": session_id, **wanted})
        return msgspec.json.decode(answer, type=_Session).api_key

    async def close_session(self, session_id: str, status: SessionStatus) -> None:
        """Ends a session. Those that end while others are being ended go together, as one change of the store."""
        self._ending[session_id] = status
        async with self._end_turn:
            if session_id in self._ending:
                some, self._ending = self._ending, {}
                try:
                    answer = await self._ask("POST", "/api/sessions/close", {"sessions": some})
                except BaseException:
                    # The others are not ended either, and ask for themselves.
                    del some[session_id]
                    self._ending = some | self._ending
                    raise
                self._unknown.update(msgspec.json.decode(answer, type=_Closed).unknown)
        if session_id in self._unknown:
            self._unknown.discard(session_id)
            raise ProxyRefused(f"there is no session {session_id!r}")

    async def add_reward(self, session_id: str, reward: Reward) -> None:
        """Rewards a session."""
        given = {
            "aggregate_reward_score": reward.value,
            "metrics_list": [
                {"name": one.name, "value": one.value, "type": one.kind.value} for one in reward.components
            ],
            "turn_rewards": [
                {"value": one.value, **({"turn": one.turn} if one.call_id is None else {"call_id": one.call_id})}
                for one in reward.turns
            ],
        }
        await self._ask("POST", f"/api/sessions/{session_id}/rewards", given)

    async def paused(self) -> bool:
        """Whether the engines are paused, so that harnesses wait and it is not their fault."""
        return msgspec.json.decode(await self._ask("GET", "/api/generation"), type=_Generation).paused

    async def _ask(self, method: str, path: str, body: Any = None) -> bytes:
        assert self._http is not None, "use it as a context manager"
        sent = None if body is None else msgspec.json.encode(body)
        try:
            # Wherever a redirect leads, the key is not for it.
            async with self._http.request(method, self.base + path, data=sent, allow_redirects=False) as answer:
                said = await answer.read()
        except (aiohttp.ClientError, TimeoutError) as error:
            raise ProxyRefused(f"the proxy at {self.base} cannot be reached: {error!r}") from error
        if answer.status >= 300:
            raise ProxyRefused(f"{method} {path}: {answer.status} {said.decode(errors='replace')[:500]}")
        return said
