"""What a runtime is: a home, a working copy and a way to run commands in them, until it is stopped.

The folders of a runtime are known by their paths as programs inside see them. What runs inside is not trusted: it may have
made any file, name or link, so files go in and out only by `put` and `get`, which follow no link.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

import msgspec

from polarproxy.errors import InvalidValue

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from polarproxy.rollout.runtimes.budget import Budget


_MOST = 2**31 - 1
"""Of a limit: more, in bytes, is beyond what the kernel counts with."""


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What the programs of a runtime may use, all of them together unless it says otherwise."""

    memory_mb: int = 4096
    """MiB of memory of their own; also the most that one process may ask for."""
    processes: int = 512
    """Processes and threads. `local` cannot limit them: it would be a limit of the user's."""
    file_mb: int = 1024
    """MiB of one file."""
    disk_mb: int = 4096
    """MiB in home, working copy and temporary folder; looked at every half second."""
    output_mb: int = 64
    """MiB that one command may print. What is kept of it is less: its beginning and its end."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            if not 0 < getattr(self, name) <= _MOST:
                raise InvalidValue(f"the limit {name} is {getattr(self, name)}; it must lie in 1..{_MOST}")


@dataclass(frozen=True, slots=True)
class Folder:
    """A copy of this folder, links kept as links."""

    path: Path


@dataclass(frozen=True, slots=True)
class GitCommit:
    """That one commit, without its history and what came after it."""

    repository: str
    """A path or an address that git can fetch from."""
    commit: str
    """A full commit id, a branch or a tag."""


@dataclass(frozen=True, slots=True)
class Archive:
    """What a tar (also compressed) or zip file holds."""

    path: Path


@dataclass(frozen=True, slots=True)
class Image:
    """The folder of a container image in which work is done; containers only."""

    folder: str = "/work"


Source = Folder | GitCommit | Archive | Image


@dataclass(frozen=True, slots=True)
class Spec:
    """What a runtime is started with."""

    source: Source | None = None
    """Of the working copy. None: it is empty."""
    limits: Limits = field(default_factory=Limits)
    programs: tuple[Path, ...] = ()
    """Folders of this machine that programs inside may read, at the same paths: where harnesses are installed."""
    proxy: str | None = None
    """`http://host:port` of the proxy, the only thing on any network that can be reached. None: nothing can."""
    image: str | None = None
    """The container image; containers only. None: the runtime's own default."""
    network: str | None = None
    """The network on which the proxy is reached; docker and podman only. None: the engine's own, which leads everywhere."""


class StoppedBy(StrEnum):
    """Why a command was ended before its own end."""

    TIME = "time"
    MEMORY = "memory"
    PROCESSES = "processes"
    DISK = "disk"
    OUTPUT = "output"


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended. Output is decoded as UTF-8, undecodable bytes replaced, and its middle left out when it is long."""

    exit_code: int
    """As a shell gives it: 128 + N when signal N ended the command, 126 or 127 when it could not be started."""
    stdout: str
    stderr: str
    stopped_by: StoppedBy | None
    """None: it ended by itself."""
    seconds: float
    """Of wall time, pauses of the budget included."""


class Runtime(Protocol):
    """A running runtime. One command at a time or several; all of them end with `stop`."""

    kind: str
    """`local`, `bubblewrap`, …"""
    home: str
    """The home of programs inside: an empty folder at first. Absolute, as all paths here."""
    work: str
    """The working copy, in which commands run."""
    temporary: str
    proxy: str | None
    """The proxy's `http://host:port` as programs inside reach it. None: it was not asked for."""

    async def exec(
        self, command: Sequence[str], *, env: Mapping[str, str], budget: Budget, stdin: bytes = b""
    ) -> Ended:
        """Runs a command in the working copy, with nothing in its environment but PATH, HOME, TMPDIR, LANG and `env`.

        When it ends, by itself, by the budget, a limit or cancellation, everything that it started is killed. Raises
        `RuntimeFailed` when the runtime itself cannot run commands, or is stopped.
        """
        ...

    async def put(self, path: str, content: bytes, *, executable: bool = False) -> None:
        """Writes a file; `path` is absolute, in one of the three folders, or relative to the working copy.

        Raises `RuntimeFailed` when the path leads outside, or through a link.
        """
        ...

    async def get(self, path: str) -> bytes:
        """A file's bytes. Raises `FileNotFoundError`; `RuntimeFailed` for what is no file, is too large or lies outside."""
        ...

    async def diff(self) -> bytes:
        """What changed in the working copy since the start, as a patch for `git apply`, but for what its `.gitignore` names.

        Raises `RuntimeFailed` when git is missing or fails.
        """
        ...

    async def stop(self) -> None:
        """Kills all that runs inside and removes the folders; may be called again."""
        ...
