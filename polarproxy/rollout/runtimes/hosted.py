"""A runtime whose folders lie on this machine: files in and out, patches, limits, and the end of it all."""

from __future__ import annotations

import asyncio
import os
import time
from abc import ABC, abstractmethod
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from polarproxy.errors import RuntimeFailed
from polarproxy.rollout.runtimes import beneath
from polarproxy.rollout.runtimes.budget import Budget
from polarproxy.rollout.runtimes.census import size_of
from polarproxy.rollout.runtimes.clearing import FOLDER, clear
from polarproxy.rollout.runtimes.folder import OwnFolder
from polarproxy.rollout.runtimes.process import Launch, run
from polarproxy.rollout.runtimes.protocol import StoppedBy
from polarproxy.rollout.runtimes.sources import fill

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from polarproxy.rollout.runtimes.census import Census
    from polarproxy.rollout.runtimes.protocol import Ended, Source, Spec

KEEPERS = 4
"""Processes of our own around a command: bubblewrap's two, the shim, its relay. Some are counted with the rest."""
SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"
_DIFF_S = 300.0
_PATCH = "polarproxy-diff.patch"
_DIFF = """set -e
export GIT_DIR=$TMPDIR/polarproxy-diff.git GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null LC_ALL=C
rm -rf "$GIT_DIR"
git init -q --bare "$GIT_DIR"
git config core.bare false
git --work-tree="$1" add -A
old=$(git write-tree)
git --work-tree="$2" add -A
new=$(git write-tree)
git --work-tree="$2" diff --binary --no-color --no-ext-diff --no-textconv --full-index "$old" "$new" > "$3"
rm -rf "$GIT_DIR"
"""


class HostedRuntime(ABC):
    """The protocol over three folders in a new folder of this machine; how a command runs in them is the subclass's."""

    kind: str

    def __init__(self, spec: Spec, census: Census) -> None:
        self.spec = spec
        self.proxy = spec.proxy
        self._own = OwnFolder("run")
        self.folder = self._own.path
        self._folders = {name: self.folder / name for name in ("home", "work", "tmp")}
        self.home, self.work, self.temporary = self.seen("home"), self.seen("work"), self.seen("tmp")
        self._census = census
        self._running: set[asyncio.Task[Ended]] = set()
        self._stopped = False
        self._measured = (0.0, 0)

    def seen(self, name: str) -> str:
        """The path inside of one of the folders `home`, `work` and `tmp`."""
        return str(self._folders[name])

    @property
    def owner(self) -> int | None:
        """The user that programs inside are. None: the one who runs this."""
        return None

    @abstractmethod
    def wrapped(self, command: Sequence[str], env: Mapping[str, str], stdin: bytes, base: Path | None) -> Launch:
        """The process that runs a command; `base` is a folder that this one command may read, at the path `base_seen`."""

    @property
    def base_seen(self) -> str:
        """Where the original of the working copy lies while a patch is made."""
        return str(self.folder / "base")

    async def start(self) -> None:
        """Makes the folders and fills the working copy; raises `RuntimeFailed` and leaves nothing when that fails."""
        try:
            for folder in self._folders.values():
                folder.mkdir(mode=0o700)
            await self.fill(self.spec.source, self._folders["work"])
            if self.owner is not None:
                await asyncio.to_thread(_give, self.folder, self.owner)
        except BaseException:
            await self.stop()
            raise

    async def fill(self, source: Source | None, folder: Path) -> None:
        """Puts a source into an empty folder; raises `RuntimeFailed`."""
        await fill(source, folder, self.spec.limits.disk_mb)

    async def exec(
        self, command: Sequence[str], *, env: Mapping[str, str], budget: Budget, stdin: bytes = b""
    ) -> Ended:
        return await self._exec(command, env, budget, stdin, None)

    async def _exec(
        self, command: Sequence[str], env: Mapping[str, str], budget: Budget, stdin: bytes, base: Path | None
    ) -> Ended:
        if self._stopped:
            raise RuntimeFailed(f"the runtime in {self.folder} is stopped")
        known = {"PATH": SYSTEM_PATH, "HOME": self.home, "TMPDIR": self.temporary, "LANG": "C.UTF-8"}
        launch = self.wrapped(command, known | dict(env), stdin, base)
        task = asyncio.ensure_future(run(launch, budget, self._watch))
        self._running.add(task)
        try:
            return await task
        except OSError as error:
            raise RuntimeFailed(f"{command[0]} cannot be started: {error.strerror}") from error
        except ValueError as error:
            raise RuntimeFailed(f"{command[0]} cannot be given what it is to be given: {error}") from error
        except asyncio.CancelledError:
            if self._stopped and not _cancelling():
                raise RuntimeFailed(f"the runtime in {self.folder} was stopped") from None
            raise
        finally:
            self._running.discard(task)

    async def put(self, path: str, content: bytes, *, executable: bool = False) -> None:
        root, inside = self._place(path)
        mode = 0o700 if executable else 0o600
        await asyncio.to_thread(beneath.write, root, inside, content, mode=mode, owner=self.owner)

    async def get(self, path: str) -> bytes:
        return await asyncio.to_thread(beneath.read, *self._place(path))

    def _place(self, path: str) -> tuple[Path, PurePosixPath]:
        """The folder of this machine, and the path in it."""
        asked = PurePosixPath(self.work, path)
        for name, folder in self._folders.items():
            if asked.is_relative_to(self.seen(name)):
                inside = asked.relative_to(self.seen(name))
                if inside.parts and ".." not in inside.parts:
                    return folder, inside
        raise RuntimeFailed(f"{path} names no file in {self.work}, {self.home} or {self.temporary}")

    async def diff(self) -> bytes:
        base, patch = self.folder / "base", f"{self.temporary}/{_PATCH}"
        await asyncio.to_thread(_empty, base)
        try:
            await self.fill(self.spec.source, base)
            command = ["sh", "-c", _DIFF, "diff", self.base_seen, self.work, patch]
            ended = await self._exec(command, {}, Budget(_DIFF_S), b"", base)
            if ended.exit_code != 0:
                raise RuntimeFailed(f"no patch could be made: {ended.stderr.strip()[-500:] or ended.stopped_by}")
            return await self.get(patch)
        finally:
            await asyncio.to_thread(_empty, base)

    async def stop(self) -> None:
        self._stopped = True
        running = list(self._running)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        try:
            await asyncio.to_thread(self._own.remove)
        finally:
            self._own.release()

    async def _watch(self, pid: int) -> StoppedBy | None:
        limits, use = self.spec.limits, await self._census.use(pid)
        if use.memory > limits.memory_mb << 20:
            return StoppedBy.MEMORY
        if use.processes > limits.processes + 2 * KEEPERS:
            return StoppedBy.PROCESSES
        return StoppedBy.DISK if await self._disk() + use.deleted > limits.disk_mb << 20 else None

    async def _disk(self) -> int:
        """Bytes in the folders; the more files they have, the more seldom it is looked."""
        due, size = self._measured
        now = time.monotonic()
        if now >= due:
            size = await asyncio.to_thread(size_of, list(self._folders.values()))
            took = time.monotonic() - now
            self._measured = (now + took * 20, size)
        return size


def _cancelling() -> bool:
    """Whether the task that asks is to end itself."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _give(folder: Path, owner: int) -> None:
    for place, _, files in os.walk(folder):
        os.chown(place, owner, owner)
        for name in files:
            os.chown(Path(place, name), owner, owner, follow_symlinks=False)


def _empty(folder: Path) -> None:
    """An empty folder; one that is there stays the same, because a container has it mounted."""
    folder.mkdir(exist_ok=True)
    at = os.open(folder, FOLDER)
    try:
        clear(at)
    finally:
        os.close(at)
