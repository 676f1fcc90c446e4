"""Time that a run may use, which does not pass while others keep it waiting."""

from __future__ import annotations

import asyncio
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


class Budget:
    """So many seconds of active time. They pass while something is `running`, and nothing is `held`."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._used = 0.0
        self._since: float | None = None
        self._running = 0
        self._held = 0
        self._changed = asyncio.Event()

    @property
    def used(self) -> float:
        """Seconds used so far."""
        return self._used + (0.0 if self._since is None else time.monotonic() - self._since)

    @property
    def left(self) -> float:
        """Seconds left; 0 when all are used."""
        return max(0.0, self.seconds - self.used)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Time passes in this block."""
        self._step(running=1)
        try:
            yield
        finally:
            self._step(running=-1)

    @contextmanager
    def held(self) -> Iterator[None]:
        """No time passes in this block: the engine is paused, say."""
        self._step(held=1)
        try:
            yield
        finally:
            self._step(held=-1)

    def _step(self, running: int = 0, held: int = 0) -> None:
        self._used, self._since = self.used, None
        self._running += running
        self._held += held
        if self._running and not self._held:
            self._since = time.monotonic()
        self._changed.set()

    async def spent(self) -> None:
        """Returns once all seconds are used."""
        while self.left > 0:
            self._changed.clear()
            try:
                async with asyncio.timeout(None if self._since is None else self.left):
                    await self._changed.wait()
            except TimeoutError:
                pass
