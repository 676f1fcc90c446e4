"""What evaluators look at: how the harness ended, and the runtimes with what it left behind."""

from __future__ import annotations

import asyncio
import errno
import secrets
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from polarproxy.errors import JudgeFailed, RuntimeFailed
from polarproxy.rollout.runtimes.budget import Budget

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from polarproxy.credit.transcript import Transcript
    from polarproxy.model import Session
    from polarproxy.rollout.runtimes.protocol import Ended, Runtime

_APPLY_S = 120.0
_SHOWN = 500
_MACHINE = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EMFILE, errno.ENFILE, errno.EROFS)
"""What goes wrong with this machine and is nobody's doing."""
_GIT_ALONE = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": "/dev/null", "LC_ALL": "C"}
"""Nothing of anybody's configuration."""


class Tampered(Exception):
    """What the harness left behind does not let the evaluator put its own files in place."""


@dataclass(slots=True)
class Evidence:
    """One rollout that has ended, and is to be judged."""

    session: Session
    """As recorded, with the status in which the harness ended."""
    instruction: str
    ended: Ended
    """How the harness ended."""
    runtime: Runtime
    """Where the harness worked."""
    fresh: Callable[[], Awaitable[Runtime]]
    """A runtime as the harness found it; asked for at most once. It is stopped by whoever gave it."""
    read: Callable[[Session], Transcript]
    """What was said in the session; reads the store."""
    _patch: bytes | None = None
    _applied: Runtime | None = None
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def patch(self) -> bytes:
        """What the harness changed in its working copy; raises `RuntimeFailed`."""
        if self._patch is None:
            self._patch = await self.runtime.diff()
        return self._patch

    async def place(self, *, fresh: bool, files: Mapping[str, str]) -> Runtime:
        """The runtime to judge in, with the evaluator's files in it. Raises `Tampered`, `JudgeFailed`, `RuntimeFailed`."""
        async with self._turn:
            where = self.runtime if not fresh else await self._with_patch()
        for path, text in files.items():
            try:
                await where.put(path, text.encode())
            except RuntimeFailed as error:
                if isinstance(error.__cause__, OSError) and error.__cause__.errno in _MACHINE:
                    raise
                raise Tampered(str(error)) from error
        return where

    async def _with_patch(self) -> Runtime:
        if self._applied is None:
            patch, runtime = await self.patch(), await self.fresh()
            if patch.strip():
                name = f"{runtime.temporary}/{secrets.token_hex(8)}.patch"
                await runtime.put(name, patch)
                command = ["git", "apply", "--whitespace=nowarn", name]
                # A repository around the runtime's folder is none of this.
                alone = _GIT_ALONE | {"GIT_CEILING_DIRECTORIES": str(PurePosixPath(runtime.work).parent)}
                ended = await runtime.exec(command, env=alone, budget=Budget(_APPLY_S))
                if ended.exit_code != 0:
                    raise JudgeFailed(f"the changes could not be applied afresh: {ended.stderr.strip()[-_SHOWN:]}")
            self._applied = runtime
        return self._applied
