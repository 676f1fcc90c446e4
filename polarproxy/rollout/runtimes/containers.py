"""Containers by docker and podman: the work is the engine's, and this is its command line.

A container is started once and each command runs in it, one at a time; what ends a command ends all that runs in the container.
The three folders are mounted from this machine; what a command installs elsewhere lasts as long as the container. An engine
has no network that leads to the proxy alone unless its user makes one, `docker network create --internal polarproxy`.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import subprocess
from asyncio.subprocess import DEVNULL, PIPE
from typing import TYPE_CHECKING, ClassVar
from urllib.parse import urlsplit

from polarproxy.errors import RuntimeFailed
from polarproxy.rollout.runtimes.hosted import HostedRuntime
from polarproxy.rollout.runtimes.process import Launch
from polarproxy.rollout.runtimes.protocol import Image

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from polarproxy.rollout.runtimes.budget import Budget
    from polarproxy.rollout.runtimes.census import Census
    from polarproxy.rollout.runtimes.protocol import Ended, Source, Spec

DEFAULT_IMAGE = "docker.io/library/debian:stable"
_SEEN = {"home": "/home/agent", "work": "/workspace", "tmp": "/tmp"}
_HOST = "polarproxy.host"
"""How this machine is called inside."""
_STEP_S = 600.0
_TRIAL_S = 20.0


class ContainerRuntime(HostedRuntime):
    """See the module."""

    engine: ClassVar[str]
    as_user: ClassVar[tuple[str, ...]]
    """The flags by which files that it makes belong to whoever runs polarproxy."""

    def __init__(self, spec: Spec, census: Census) -> None:
        super().__init__(spec, census)
        self.name = f"polarproxy-{secrets.token_hex(8)}"
        self._turn = asyncio.Lock()
        if spec.proxy is not None:
            parts = urlsplit(spec.proxy)
            self.proxy = f"{parts.scheme}://{_HOST}:{parts.port or (443 if parts.scheme == 'https' else 80)}"

    @classmethod
    def why_not(cls) -> str | None:
        """Why it does not work here. None: it does."""
        try:
            command = [cls.engine, "info"]
            trial = subprocess.run(
                command, stdin=DEVNULL, capture_output=True, text=True, timeout=_TRIAL_S, check=False
            )
        except FileNotFoundError:
            return f"{cls.engine} is not installed"
        except subprocess.TimeoutExpired:
            return f"{cls.engine} did not answer within {_TRIAL_S:g} s"
        return None if trial.returncode == 0 else f"{cls.engine} does not work here: {trial.stderr.strip()[-300:]}"

    def seen(self, name: str) -> str:
        return _SEEN[name]

    @property
    def base_seen(self) -> str:
        return "/polarproxy/base"

    async def start(self) -> None:
        (self.folder / "base").mkdir()
        await super().start()
        try:
            await self._engine(*self.run_arguments())
        except BaseException:
            await self.stop()
            raise

    def run_arguments(self) -> list[str]:
        """What starts the container, behind the engine's name."""
        limits = self.spec.limits
        arguments = ["run", "--detach", "--rm", "--init", "--name", self.name, *self.as_user]
        arguments += ["--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--pids-limit", str(limits.processes)]
        arguments += ["--memory", f"{limits.memory_mb}m", "--memory-swap", f"{limits.memory_mb}m"]
        arguments += ["--ulimit", f"fsize={limits.file_mb << 20}", "--network", self.network]
        if self.network != "none":
            arguments += ["--add-host", f"{_HOST}:host-gateway"]
        for name, folder in self._folders.items():
            arguments += ["--volume", f"{folder}:{self.seen(name)}"]
        arguments += ["--volume", f"{self.folder / 'base'}:{self.base_seen}:ro"]
        for program in dict.fromkeys(self.spec.programs):
            arguments += ["--volume", f"{program}:{program}:ro"]
        return [*arguments, "--workdir", self.work, self.image, "sleep", "infinity"]

    @property
    def image(self) -> str:
        """The image in force."""
        return self.spec.image or DEFAULT_IMAGE

    @property
    def network(self) -> str:
        """`none` where nothing is to be reached."""
        return "none" if self.spec.proxy is None else self.spec.network or "bridge"

    async def fill(self, source: Source | None, folder: Path) -> None:
        if not isinstance(source, Image):
            await super().fill(source, folder)
            return
        made = (await self._engine("create", self.image)).strip()
        try:
            await self._engine("cp", f"{made}:{source.folder}/.", str(folder))
        finally:
            await self._engine("rm", made)

    async def _exec(
        self, command: Sequence[str], env: Mapping[str, str], budget: Budget, stdin: bytes, base: Path | None
    ) -> Ended:
        async with self._turn:
            try:
                return await super()._exec(command, env, budget, stdin, base)
            finally:
                if not self._stopped:
                    await asyncio.shield(asyncio.ensure_future(self._sweep()))

    async def _sweep(self) -> None:
        # Every process but the first one, which is the engine's own.
        await self._engine("exec", self.name, "sh", "-c", "kill -KILL -1", fails=True)

    def wrapped(self, command: Sequence[str], env: Mapping[str, str], stdin: bytes, base: Path | None) -> Launch:
        # A file: on a command line, all users of this machine could read the key.
        variables = self.folder / "environment"
        if any("\n" in value for value in env.values()):
            raise RuntimeFailed(f"{self.engine} takes no environment variable of several lines")
        variables.touch(mode=0o600)
        variables.write_text("".join(f"{name}={value}\n" for name, value in env.items()))
        arguments = ["exec", "--interactive", "--env-file", str(variables), "--workdir", self.work, self.name]
        return Launch(
            [self.engine, *arguments, *command], dict(os.environ), self.folder, stdin, self.spec.limits.output_mb
        )

    async def stop(self) -> None:
        if self.folder.exists():
            await self._engine("rm", "--force", self.name, fails=True)
        await super().stop()

    async def _engine(self, *arguments: str, fails: bool = False) -> str:
        """What the engine printed. Raises `RuntimeFailed` when it fails, unless it may (`fails`)."""
        if shutil.which(self.engine) is None:
            if fails:
                return ""
            raise RuntimeFailed(f"{self.engine} is not installed")
        process = await asyncio.create_subprocess_exec(self.engine, *arguments, stdin=DEVNULL, stdout=PIPE, stderr=PIPE)
        try:
            async with asyncio.timeout(_STEP_S):
                out, said = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode != 0 and not fails:
            raise RuntimeFailed(f"{self.engine} {arguments[0]} failed: {said.decode(errors='replace').strip()[-500:]}")
        return out.decode(errors="replace")


class DockerRuntime(ContainerRuntime):
    """By docker."""

    kind = "docker"
    engine = "docker"
    as_user = ("--user", f"{os.getuid()}:{os.getgid()}")


class PodmanRuntime(ContainerRuntime):
    """By podman, as rootless as its user."""

    kind = "podman"
    engine = "podman"
    as_user = ("--userns", "keep-id")
