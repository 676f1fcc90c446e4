"""Which runtimes there are, which of them work here, and starting one."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from polarproxy.errors import BadSettings, RuntimeFailed
from polarproxy.rollout.runtimes.apptainer import ApptainerRuntime
from polarproxy.rollout.runtimes.bubblewrap import BubblewrapRuntime
from polarproxy.rollout.runtimes.census import Census
from polarproxy.rollout.runtimes.containers import DockerRuntime, PodmanRuntime
from polarproxy.rollout.runtimes.folder import sweep
from polarproxy.rollout.runtimes.local import LocalRuntime

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from polarproxy.rollout.runtimes.protocol import Runtime, Spec

RUNTIMES = (BubblewrapRuntime, LocalRuntime, DockerRuntime, PodmanRuntime, ApptainerRuntime)
"""In the order in which they are taken when nobody names one; those behind `local` never are."""


def best_runtime() -> str:
    """The kind that is taken when nobody names one: bubblewrap where it works, else a process of this user's."""
    return next(runtime.kind for runtime in RUNTIMES if runtime.why_not() is None)


class Runtimes:
    """Starts runtimes that share what they can; one of these serves a whole process."""

    def __init__(self) -> None:
        self._census = Census()
        self._works: set[str] = set()
        self._swept = False

    async def start(self, kind: str, spec: Spec) -> Runtime:
        """A running runtime, to be stopped by whoever asked for it.

        Raises `BadSettings` when no kind has that name, `RuntimeFailed` when it cannot be started here.
        """
        if not self._swept:
            self._swept = True
            await asyncio.to_thread(sweep)
        for offered in RUNTIMES:
            if offered.kind == kind:
                if kind not in self._works and (reason := await asyncio.to_thread(offered.why_not)) is not None:
                    raise RuntimeFailed(f"the runtime {kind} cannot be used: {reason}")
                self._works.add(kind)
                try:
                    runtime = offered(spec, self._census)
                except OSError as error:
                    raise RuntimeFailed(f"no folder can be made for a run: {error}") from error
                await runtime.start()
                return runtime
        known = ", ".join(offered.kind for offered in RUNTIMES)
        raise BadSettings(f"there is no runtime {kind!r}; there are {known}")

    @asynccontextmanager
    async def running(self, kind: str, spec: Spec) -> AsyncIterator[Runtime]:
        """A runtime that is stopped at the end of the block."""
        runtime = await self.start(kind, spec)
        try:
            yield runtime
        finally:
            await runtime.stop()
