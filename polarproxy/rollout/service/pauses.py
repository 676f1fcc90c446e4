"""Following the proxy's pauses, so that a harness that waits for the engine does not lose its time."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING

from polarproxy.errors import ProxyRefused

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from polarproxy.rollout.runtimes.budget import Budget

_LOOK_S = 0.25


class Pauses:
    """Holds the budgets of all rollouts that run while the engines are paused."""

    def __init__(self) -> None:
        self._budgets: dict[int, Budget] = {}
        self._held: dict[int, ExitStack] = {}
        self.paused = False

    @contextmanager
    def holding(self, budget: Budget) -> Iterator[None]:
        """While the block runs, the budget is held whenever the engines are paused."""
        key = id(budget)
        self._budgets[key] = budget
        if self.paused:
            self._hold(key)
        try:
            yield
        finally:
            del self._budgets[key]
            self._let_go(key)

    def set(self, *, paused: bool) -> None:
        """The engines are paused, or run again."""
        if paused == self.paused:
            return
        self.paused = paused
        for key in self._budgets:
            (self._hold if paused else self._let_go)(key)

    async def follow(self, ask: Callable[[], Awaitable[bool]]) -> None:
        """Asks the proxy again and again; runs until it is cancelled. While it cannot be asked, nothing changes."""
        while True:
            with suppress(ProxyRefused):
                self.set(paused=await ask())
            await asyncio.sleep(_LOOK_S)

    def _hold(self, key: int) -> None:
        stack = ExitStack()
        stack.enter_context(self._budgets[key].held())
        self._held[key] = stack

    def _let_go(self, key: int) -> None:
        held = self._held.pop(key, None)
        if held is not None:
            held.close()
