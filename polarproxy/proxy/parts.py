"""What one proxy process is made of; passed along by argument, composed in one place."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from polarproxy.engine.probe import EngineFacts
from polarproxy.proxy.discovery import discover, glance

if TYPE_CHECKING:
    from polarproxy.proxy.keys import Signer
    from polarproxy.proxy.names import ModelNames
    from polarproxy.proxy.recorder import Recorder
    from polarproxy.proxy.roots import Roots
    from polarproxy.proxy.upstream import Upstream
    from polarproxy.settings import Settings
    from polarproxy.store.arrivals import Arrivals
    from polarproxy.store.repository import Repository
    from polarproxy.store.writer import Writer


@dataclass(slots=True)
class Stats:
    """Counts since the process started."""

    calls: int = 0
    passed_through: int = 0
    """Requests to other routes, relayed without a record."""
    unreadable: int = 0
    """Requests that are not JSON objects; the engine refused them in its own words."""
    store_failures: int = 0


@dataclass(slots=True)
class Parts:
    """The parts of a proxy."""

    settings: Settings
    signer: Signer
    upstream: Upstream
    repository: Repository
    writer: Writer
    arrivals: Arrivals
    recorder: Recorder
    roots: Roots
    names: ModelNames
    stats: Stats = field(default_factory=Stats)
    _facts: EngineFacts | None = None
    _asking: asyncio.Task[EngineFacts | None] | None = None

    async def engine_facts(self) -> EngineFacts:
        """What is known of the engine. While nothing is, it is asked as vLLM is, which no server of this API minds."""
        if self._facts is None:
            # However many requests wait, the engine is asked once.
            if self._asking is None:
                self._asking = asyncio.create_task(discover(self.upstream, self.settings.engine))
                self._asking.add_done_callback(self._asked)
            await asyncio.shield(self._asking)
        if self._facts is not None:
            return self._facts
        return EngineFacts("vllm" if self.settings.engine == "auto" else self.settings.engine)

    def _asked(self, task: asyncio.Task[EngineFacts | None]) -> None:
        self._asking = None
        if not task.cancelled() and task.exception() is None:
            self._facts = task.result()

    def forget_engine(self) -> None:
        """The engine failed; what comes back may be another one, and is looked at anew."""
        self._facts = None

    async def engine_answers(self) -> bool:
        """Asks the engine now. One that serves another model than before is looked at anew."""
        seen = await glance(self.upstream)
        if seen is not None and self._facts is not None and seen.model != self._facts.model:
            self._facts = None
        if seen is not None:
            await self.engine_facts()
        return seen is not None

    async def look_at_models(self) -> None:
        """Asks which models the engine serves now; adapters come and go while it runs."""
        seen = await glance(self.upstream)
        if seen is not None and self._facts is not None:
            self._facts = replace(self._facts, models=seen.models)

    def engine_trouble(self) -> str:
        """Why nothing is known of the engine, and what to do."""
        if self.upstream.refused:
            return f"the engine at {self.upstream.base} wants an API key; set upstream_key (--upstream-key)"
        return f"the engine at {self.upstream.base} does not answer"

    @property
    def engine_known(self) -> bool:
        """Whether the engine has answered since the proxy started."""
        return self._facts is not None
