"""What one proxy process is made of; passed along by argument, composed in one place."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from polarproxy.engine.probe import EngineFacts
from polarproxy.proxy.discovery import discover

if TYPE_CHECKING:
    from polarproxy.proxy.keys import Signer
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
    stats: Stats = field(default_factory=Stats)
    _facts: EngineFacts | None = None
    _asking: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def engine_facts(self) -> EngineFacts:
        """What is known of the engine. While it does not answer it is taken for what the settings say, or for `plain`."""
        if self._facts is not None:
            return self._facts
        async with self._asking:
            if self._facts is None:
                self._facts = await discover(self.upstream, self.settings.engine)
        if self._facts is not None:
            return self._facts
        return EngineFacts("plain" if self.settings.engine == "auto" else self.settings.engine)

    @property
    def engine_known(self) -> bool:
        """Whether the engine has answered since the proxy started."""
        return self._facts is not None
