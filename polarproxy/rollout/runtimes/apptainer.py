"""Apptainer, for clusters where nobody may run a daemon: each command is a process of ours in an image.

It keeps what runs inside from the files of this machine, not from its network: for that, apptainer wants rights that users of
clusters rarely have.
"""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

from polarproxy.rollout.runtimes.containers import DEFAULT_IMAGE
from polarproxy.rollout.runtimes.hosted import HostedRuntime
from polarproxy.rollout.runtimes.process import Launch, Settings, shimmed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

_SEEN = {"home": "/home/agent", "work": "/workspace", "tmp": "/tmp"}


class ApptainerRuntime(HostedRuntime):
    """See the module."""

    kind = "apptainer"

    @staticmethod
    def why_not() -> str | None:
        """Why it does not work here. None: it does."""
        return None if shutil.which("apptainer") is not None else "apptainer is not installed"

    def seen(self, name: str) -> str:
        return _SEEN[name]

    @property
    def base_seen(self) -> str:
        return "/polarproxy/base"

    def wrapped(self, command: Sequence[str], env: Mapping[str, str], stdin: bytes, base: Path | None) -> Launch:
        limits = self.spec.limits
        arguments = ["apptainer", "--quiet", "exec", "--containall", "--no-home", "--writable-tmpfs"]
        for name, folder in self._folders.items():
            arguments += ["--bind", f"{folder}:{self.seen(name)}"]
        for program in dict.fromkeys(self.spec.programs):
            arguments += ["--bind", f"{program}:{program}:ro"]
        if base is not None:
            arguments += ["--bind", f"{base}:{self.base_seen}:ro"]
        image = self.spec.image or f"docker://{DEFAULT_IMAGE}"
        inside = [*arguments, "--pwd", self.work, image, *command]
        # What is to be in the environment inside; the rest of it stays outside.
        given = {f"APPTAINERENV_{name}": value for name, value in env.items()}
        settings = Settings(memory_mb=limits.memory_mb, file_mb=limits.file_mb, parent=os.getpid())
        ours = {
            name: os.environ[name] for name in ("PATH", "HOME", "APPTAINER_CACHEDIR", "TMPDIR") if name in os.environ
        }
        return Launch(shimmed(settings, inside), ours | given, self.folder, stdin, limits.output_mb)
