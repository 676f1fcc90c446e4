"""Runtimes and harnesses by recipe: where the rollouts of a service, or of a node of a cluster, are really run."""

from __future__ import annotations

import asyncio
import tempfile
import threading
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

import msgspec
import xxhash

from polarproxy.errors import BadRequest, BadSettings, HarnessNotInstalled, RuntimeFailed
from polarproxy.rollout.installing import install
from polarproxy.rollout.recipes import named
from polarproxy.rollout.running import Access, run_harness
from polarproxy.rollout.runtimes.folder import OwnFolder
from polarproxy.rollout.runtimes.opening import RUNTIMES, Runtimes, best_runtime
from polarproxy.rollout.runtimes.protocol import Folder

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from types import TracebackType
    from typing import Self

    from polarproxy.rollout.installing import Installed
    from polarproxy.rollout.recipes import Harness
    from polarproxy.rollout.running import Outcome
    from polarproxy.rollout.runtimes.budget import Budget
    from polarproxy.rollout.runtimes.protocol import Runtime, Source
    from polarproxy.rollout.service.ports import Order
    from polarproxy.rollout.service.request import TaskRequest

Served = tuple[str, int]
"""The engine's model, and the tokens of its context."""


class RecipeWorkshop:
    """Starts runtimes of one proxy, and harnesses in them. A context manager, which keeps the files of tasks.

    `kind` is the runtime of tasks that name none; empty: the best that works on this machine.
    """

    def __init__(
        self,
        proxy: str,
        harnesses: Mapping[str, Harness],
        cache: Path,
        kind: str,
        served: Callable[[], Awaitable[Served]],
    ) -> None:
        self._proxy, self._harnesses, self._cache, self._kind, self._served = proxy, harnesses, cache, kind, served
        self._runtimes = Runtimes()
        self._installed: dict[str, asyncio.Task[Installed]] = {}
        self._files: OwnFolder | None = None
        self._closed = threading.Event()

    def __enter__(self) -> Self:
        try:
            self._files = OwnFolder("tasks")
        except OSError as error:
            raise RuntimeFailed(f"no folder can be made for the files of tasks: {error}") from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closed.set()
        if self._files is not None:
            self._files.remove()
            self._files.release()

    def check(self, request: TaskRequest) -> None:
        """Raises `BadRequest` for a harness or a runtime that there is not."""
        kind = request.place.kind or self._kind
        if kind and kind not in (known := [offered.kind for offered in RUNTIMES]):
            raise BadRequest(f"there is no runtime {kind!r}; there are {', '.join(known)}")
        try:
            harness = named(dict(self._harnesses), request.harness)
        except BadSettings as error:
            raise BadRequest(str(error)) from error
        if harness.recipe.start is None:
            raise BadRequest(f"the recipe of {request.harness} does not say how it is started")

    async def runtime(self, request: TaskRequest) -> Runtime:
        """A new one with the task's working copy; raises `RuntimeFailed`."""
        try:
            installed = await self.installed(request.harness)
            source = await asyncio.to_thread(self._written, request)
            spec = request.place.spec(self._proxy, installed.programs, source)
            kind = request.place.kind or self._kind or await asyncio.to_thread(self._best)
            return await self._runtimes.start(kind, spec)
        except (BadSettings, HarnessNotInstalled) as error:
            raise RuntimeFailed(str(error)) from error

    async def work(self, order: Order, runtime: Runtime, api_key: str, budget: Budget) -> Outcome:
        """Gives the task to its harness; raises `RuntimeFailed`."""
        request, (model, context) = order.request, await self._served()
        installed = await self.installed(request.harness)
        access = Access(session_id=order.session_id, api_key=api_key, model=request.model or model, context=context)
        return await run_harness(installed, runtime, access, request.instruction, budget)

    async def installed(self, name: str) -> Installed:
        """The harness, installed when it is first asked for; raises `HarnessNotInstalled`, `BadSettings`."""
        task = self._installed.get(name)
        if task is None:
            harness = named(dict(self._harnesses), name)
            task = asyncio.create_task(asyncio.to_thread(install, harness, self._cache, unwanted=self._closed))
            self._installed[name] = task
        try:
            return await asyncio.shield(task)
        except HarnessNotInstalled:
            # What is missing now may be there later.
            self._installed.pop(name, None)
            raise

    def _best(self) -> str:
        """The runtime for tasks that name none, on this machine."""
        self._kind = self._kind or best_runtime()
        return self._kind

    def _written(self, request: TaskRequest) -> Source | None:
        try:
            return self._source(request)
        except OSError as error:
            raise RuntimeFailed(f"the files of the task cannot be written: {error}") from error

    def _source(self, request: TaskRequest) -> Source | None:
        """Of the working copy. Files that are written in the task lie in a folder of their own, once for all its rollouts."""
        files = request.place.files
        if not files:
            return request.place.source()
        assert self._files is not None, "use it as a context manager"
        digest = xxhash.xxh3_128_hexdigest(msgspec.json.encode(files, order="sorted"))
        folder = self._files.path / digest
        if not folder.exists():
            with tempfile.TemporaryDirectory(dir=self._files.path) as made:
                for path, text in files.items():
                    file = Path(made, "task", PurePosixPath(path))
                    file.parent.mkdir(parents=True, exist_ok=True)
                    file.write_text(text)
                try:
                    Path(made, "task").rename(folder)
                except OSError:
                    # Another rollout of the task was faster.
                    if not folder.exists():
                        raise
        return Folder(folder)
