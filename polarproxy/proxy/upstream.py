"""One inference engine: the connections to it, what is known of it, and whether it can be asked."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from xxhash import xxh3_64_hexdigest

from polarproxy.engine.probe import EngineFacts
from polarproxy.errors import EngineFailed, EngineTimeout, EngineUnreachable
from polarproxy.proxy.discovery import PATIENCE_S, discover, glance
from polarproxy.proxy.http.origin import Origin
from polarproxy.proxy.http.pool import Pool

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from polarproxy.errors import PolarproxyError
    from polarproxy.proxy.http.answer import Answer
    from polarproxy.settings import Settings

_MISSES = 2
"""Questions in a row that an engine may leave unanswered: a busy one is slow, and its cache is worth waiting for."""
_NO_HEALTH_ROUTE = (404, 405, 501)


class Upstream:
    """Keeps connections open, and closes the one of a request that is given up, which frees the engine."""

    def __init__(self, base: str, settings: Settings, suspected: Callable[[], None] = lambda: None) -> None:
        """`suspected` is called when the engine failed and should be looked at. Raises `BadSettings` when `base`, an
        element of `Settings.upstreams`, names no server."""
        origin = Origin.of(base)
        self.base = base
        self.name = f"{origin}{origin.prefix}"
        """The base URL without user and password: what is recorded and shown, and what sessions are spread by."""
        self.id = "u" + xxh3_64_hexdigest(self.name.encode())[:8]
        """The same at every proxy."""
        self._pool = Pool(origin, settings.connect_timeout, settings.read_timeout)
        self._key = settings.upstream_key
        self._wanted = settings.engine
        self._suspected = suspected
        self._facts: EngineFacts | None = None
        self._asking: asyncio.Task[None] | None = None
        self._missed = 0
        self.life = 0
        """How often another engine may have taken its place since the process started."""
        self.models: tuple[str, ...] = ()
        """What it serves, as far as known; kept while it is away."""
        self.asked = False
        """Whether it was asked what it is, whatever came of it."""
        self.met = False
        """Whether it ever said what it is. What one serves that did not is not known."""
        self.draining = False
        """Whether it takes no new calls."""
        self.trouble: str | None = None
        """Why it cannot be asked now. None: nothing is known against it."""
        self.refused = False
        """Whether the engine's latest answer to us was that it wants an API key."""
        self.calls = 0
        """Requests of clients that were sent to it since the process started."""

    @property
    def own_head(self) -> dict[str, str]:
        """The headers of a request of our own."""
        head = {"Content-Type": "application/json"}
        return head | {"Authorization": f"Bearer {self._key}"} if self._key else head

    @property
    def in_flight(self) -> int:
        """Requests of clients that it is busy with."""
        return self._pool.clients

    async def close(self) -> None:
        """Closes every connection."""
        await self._pool.close()

    async def send(self, method: str, path: str, headers: Mapping[str, str], body: bytes | None) -> Answer:
        """The head of the engine's answer. The caller closes it; until then it holds a connection.

        A kept connection that the engine had closed or reset meanwhile is replaced by a fresh one, once. What fails on a
        fresh connection is not tried again: the engine may have read it. Raises `EngineTimeout`, `EngineUnreachable`.
        """
        self.calls += 1
        try:
            answer = await self._pool.send(method, path, headers, body, for_client=True)
        except EngineFailed as error:
            self.failed(error)
            raise
        if answer.status >= 500:
            self._suspected()
        else:
            self.trouble, self._missed = None, 0
        return answer

    async def ask_for(self, head: Mapping[str, str], path: str, body: bytes) -> tuple[int, bytes]:
        """Status and body of a request of our own on behalf of a client; raises `EngineTimeout`, `EngineUnreachable`."""
        async with await self._pool.send("POST", path, head, body) as answer:
            return answer.status, await answer.read()

    async def ask(self, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
        """Status and body of a request of our own; raises `EngineTimeout`, `EngineUnreachable`."""
        async with await self._pool.send(method, path, self.own_head, body) as answer:
            self.refused = answer.status in (401, 403)
            return answer.status, await answer.read()

    async def facts(self) -> EngineFacts:
        """What is known of the engine. While nothing is, it is asked as vLLM is, which no server of this API minds."""
        if self._facts is None:
            # However many requests wait, the engine is asked once.
            if self._asking is None:
                self._asking = asyncio.create_task(self._ask_it())
            await asyncio.shield(self._asking)
        if self._facts is not None:
            return self._facts
        return EngineFacts("vllm" if self._wanted == "auto" else self._wanted)

    async def _ask_it(self) -> None:
        # Noted here and not by a callback: that would run a moment after the task is done, and a request that comes in
        # between would go on as if nothing were known.
        try:
            self._facts = await discover(self, self._wanted)
        finally:
            self._asking = None
        self.asked = True
        if self._facts is None:
            self._miss()
        else:
            self.met, self.models = True, self._facts.models

    @property
    def known(self) -> EngineFacts | None:
        """What was found when the engine was last looked at. None: it has not answered since it failed."""
        return self._facts

    def doubt(self) -> None:
        """What answers now may be another engine, and is looked at anew."""
        self._facts = None
        self.life += 1

    def failed(self, error: PolarproxyError) -> None:
        """A request of a client failed. What comes back may be another engine, and is looked at anew."""
        self.doubt()
        if isinstance(error, EngineFailed) and not error.sent:
            self.trouble = str(error)
        self._suspected()

    async def look(self) -> bool:
        """Asks the engine now which models it serves; whether it answers. Adapters come and go while it runs; one whose
        first model is another than before is looked at anew."""
        seen = await glance(self)
        if seen is None:
            return False
        if self._facts is not None and seen.model != self._facts.model:
            self.doubt()
        await self.facts()
        if self._facts is not None:
            self._facts = replace(self._facts, models=seen.models)
            self.models = seen.models
        return True

    def why_unknown(self) -> str:
        """Why nothing is known of the engine, and what to do."""
        if self.refused:
            return f"the engine at {self.name} wants an API key; set upstream_key (--upstream-key)"
        return f"the engine at {self.name} does not answer"

    async def check(self) -> None:
        """Asks the engine how it is, and says so in `trouble`."""
        try:
            async with asyncio.timeout(PATIENCE_S):
                trouble = await self._ailment()
        except EngineUnreachable as error:
            self.trouble = str(error)
            return
        except (EngineTimeout, TimeoutError):
            self._miss()
            return
        if trouble is None and not await self.look():
            self._miss()
            return
        self.trouble, self._missed = trouble, 0

    def _miss(self) -> None:
        """It did not answer, or did not say what it serves, which must be known once before it is given anything."""
        self._missed += 1
        if self.refused or not self.met:
            self.trouble = self.why_unknown()
        elif self._missed >= _MISSES:
            self.trouble = f"the engine at {self.name} has not answered {self._missed} checks in a row"

    async def _ailment(self) -> str | None:
        """What its health route says; None when it is well, or has no such route."""
        status, _ = await self.ask("GET", "/health")
        if status < 400 or status in _NO_HEALTH_ROUTE:
            return None
        return f"the engine at {self.name} says that it is not well: GET /health answers {status}"
