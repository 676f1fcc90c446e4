"""What is known of each engine, how long it is true, and when an engine that is late is left alone."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from polarproxy.proxy.exact.renders import Renders

if TYPE_CHECKING:
    from collections.abc import Mapping

    from polarproxy.engine.exact.conversation import Settings
    from polarproxy.proxy.upstream import Upstream

REST_S = 60.0
"""How long nothing is rendered by an engine that was late `MISSES` times."""
LOOK_S = 60.0
"""How often an engine is looked at again: another one may have taken its place between two requests."""
MISSES = 2
RESTING = f"the engine rendered nothing in time {MISSES} times; it is asked again within {REST_S:g} s"


def _now() -> float:
    return asyncio.get_running_loop().time()


@dataclass(slots=True)
class EngineState:
    """What was found out of an engine, as long as it is the same."""

    life: int
    renders: Renders
    looked: float
    """When it was last seen to render as it did at first, by the event loop's clock."""
    able: asyncio.Task[str | None] | None = None
    """Why it cannot be given exact prompts. None: it was not asked."""
    late: int = 0
    """How many requests waited for their prompts in vain since one was made."""
    rests_until: float = 0.0
    """Until when nothing is rendered, by the event loop's clock."""

    def was_late(self) -> None:
        """A request waited in vain."""
        self.late += 1
        if self.late >= MISSES:
            self.rests_until = _now() + REST_S

    @property
    def rests(self) -> bool:
        """Whether it rendered nothing in time of late, and is not waited for."""
        return _now() < self.rests_until

    def knows(self, fields: Settings) -> bool:
        """Whether it need not be asked what it takes, nor what its template does."""
        known = self.able is not None and self.able.done() and self.able.exception() is None
        return known and self.renders.knows(fields)


class Engines:
    """The engines that were asked."""

    def __init__(self) -> None:
        self._states: dict[Upstream, EngineState] = {}

    def of(self, upstream: Upstream) -> EngineState:
        """What is known of the engine; nothing of one that may have taken its place."""
        engine = self._states.get(upstream)
        if engine is None or engine.life != upstream.life:
            engine = self._states[upstream] = EngineState(upstream.life, Renders(upstream), _now())
        return engine

    async def looked_at(self, upstream: Upstream, head: Mapping[str, str]) -> EngineState:
        """The engine, once it is known to be the same. Raises as `Renders.ids` does."""
        engine = self.of(upstream)
        if engine.rests or _now() - engine.looked < LOOK_S:
            return engine
        if await engine.renders.unchanged(head):
            engine.looked = _now()
            return engine
        if engine is self._states.get(upstream):
            # Not when another request found out at the same time.
            upstream.doubt()
        return self.of(upstream)
