"""Run a harness as a local process: nothing of the user's environment reaches it, and nothing of it is left behind."""

import asyncio
import contextlib
import os
import signal
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"


@dataclass(frozen=True)
class HarnessResult:
    """How one run of a harness ended; output is decoded as UTF-8, undecodable bytes replaced."""

    exit_code: int
    """Negative: ended by that signal."""
    stdout: str
    stderr: str
    timed_out: bool
    seconds: float


def minimal_environment(home: Path, env: Mapping[str, str]) -> dict[str, str]:
    """What the harness sees: PATH, an empty home, UTF-8, and `env`, which wins."""
    base = {"PATH": os.environ.get("PATH", SYSTEM_PATH), "HOME": str(home), "TMPDIR": str(home), "LANG": "C.UTF-8"}
    return base | dict(env)


async def run_harness(command: Sequence[str], env: Mapping[str, str], timeout_s: float) -> HarnessResult:
    """Run the command in a new, empty folder that is also its HOME, until it ends or `timeout_s` seconds have passed.

    The process and all its descendants in its process group are killed on timeout, on cancellation, and when the
    harness itself ends before they do. Raises FileNotFoundError or PermissionError if the command cannot be started.
    """
    started = time.monotonic()
    with (
        tempfile.TemporaryDirectory(prefix="polarproxy-harness-", ignore_cleanup_errors=True) as folder,
        # Files, not pipes: a descendant that outlives the harness cannot keep us waiting for the end of its output.
        tempfile.TemporaryFile() as stdout,
        tempfile.TemporaryFile() as stderr,
    ):
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            cwd=folder,
            env=minimal_environment(Path(folder), env),
            start_new_session=True,
        )
        timed_out = False
        try:
            async with asyncio.timeout(timeout_s):
                await process.wait()
        except TimeoutError:
            timed_out = True
        finally:
            _kill_group(process.pid)
            exit_code = await process.wait()
        return HarnessResult(exit_code, _text(stdout), _text(stderr), timed_out, time.monotonic() - started)


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode(errors="replace")


def _kill_group(leader: int) -> None:
    """End whatever is left of the process group; it is the leader's own, so nothing else can be hit."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)
