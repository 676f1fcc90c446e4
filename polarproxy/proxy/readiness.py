"""Whether the store would take a call now: asked of the store itself when somebody wants to know, and not guessed from calls
alone. A proxy that its load balancer took out gets none, and must find out by itself that it can come back."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from polarproxy.errors import StoreDamaged, StoreUnavailable

if TYPE_CHECKING:
    from polarproxy.store.arrivals import Arrivals
    from polarproxy.store.keeper import Keeper

PATIENCE_S = 0.5
"""How long the store may take to answer. Kubernetes gives a probe one second in all, unless it is told otherwise."""


class Readiness:
    """Asks the store. At most one question is under way, and one trial, however many want to know and however often: who comes
    meanwhile waits for the same answer, and a store that hangs is not asked again."""

    def __init__(self, arrivals: Arrivals | None, writer: Keeper) -> None:
        """`arrivals`: None where a spool takes calls whatever the database says (of SQLite, those of sessions seen before)."""
        self._arrivals = arrivals
        self._writer = writer
        self._asking: asyncio.Task[str | None] | None = None
        self._since = 0.0

    async def problems(self) -> list[str]:
        """Why the next call would be refused for the store's sake, one sentence each; after `PATIENCE_S` at the latest."""
        unread, uncommitted = await asyncio.gather(self._unread(), self._writer.look(PATIENCE_S))
        found = [] if unread is None else [unread]
        return found if uncommitted is None else [*found, f"the store cannot commit: {uncommitted}"]

    async def _unread(self) -> str | None:
        if self._arrivals is None:
            return None
        if self._asking is None or self._asking.done():
            self._asking, self._since = asyncio.create_task(_read(self._arrivals)), time.monotonic()
        await asyncio.wait((self._asking,), timeout=PATIENCE_S)
        if self._asking.done():
            return self._asking.result()
        return f"the store has not answered for {time.monotonic() - self._since:.1f} s"

    def close(self) -> None:
        """Asks no more."""
        if self._asking is not None:
            self._asking.cancel()


async def _read(arrivals: Arrivals) -> str | None:
    try:
        await arrivals.look()
    except (StoreUnavailable, StoreDamaged) as error:
        return str(error)
    return None
