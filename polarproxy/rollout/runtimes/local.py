"""A process group on this machine: no isolation, but nothing of the user's environment, limits, and a sure end.

For harnesses that are trusted. What they could reach as the user who runs them, they can reach: files, the network, and the
proxy's control API unless it wants a key.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from polarproxy.rollout.runtimes.hosted import HostedRuntime
from polarproxy.rollout.runtimes.process import Launch, Settings, shimmed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path


class LocalRuntime(HostedRuntime):
    """See the module."""

    kind = "local"

    @staticmethod
    def why_not() -> str | None:
        """Why it does not work here. None: it does."""
        return None

    def wrapped(self, command: Sequence[str], env: Mapping[str, str], stdin: bytes, base: Path | None) -> Launch:
        limits = self.spec.limits
        settings = Settings(memory_mb=limits.memory_mb, file_mb=limits.file_mb, parent=os.getpid())
        line, home = shimmed(settings, command), self._folders["home"]
        return Launch(line, env, self._folders["work"], stdin, limits.output_mb, home=home)
