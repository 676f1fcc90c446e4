"""Programs that are run from a thread: nothing that they start outlives them, nor this process."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from polarproxy.rollout.runtimes import shim
from polarproxy.rollout.runtimes.process import Settings, shimmed

if TYPE_CHECKING:
    import threading
    from collections.abc import Mapping, Sequence
    from pathlib import Path
    from typing import IO

_MOST_OUTPUT = 4 << 20
"""Bytes of output that are read; what comes later is a program that does not know when to stop."""
_GONE_S = shim.GONE_S + 3.0
_LOOK_S = 0.1


@dataclass(frozen=True, slots=True)
class Done:
    """How a program ended. Output is decoded as UTF-8, undecodable bytes replaced, and cut when it is long."""

    code: int | None
    """Its exit code, negative when a signal ended it, 126 or 127 when it could not be started. None: it was ended, since its
    time was up or nobody wanted it any more."""
    stdout: str
    stderr: str


def run(
    command: Sequence[str],
    *,
    seconds: float,
    folder: Path | None = None,
    env: Mapping[str, str] | None = None,
    stdin: bytes = b"",
    unwanted: threading.Event | None = None,
) -> Done:
    """Runs it until it ends, for at most so long, or until it is `unwanted`; then all that it started is gone.

    `folder` and `env` None: those of this process.
    """
    # Files, not pipes: nobody who holds the other end keeps us waiting for the end of the output.
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
        given.write(stdin)
        given.seek(0)
        process = subprocess.Popen(
            shimmed(Settings(parent=os.getpid(), by_signal=True), command),
            stdin=given,
            stdout=stdout,
            stderr=stderr,
            cwd=folder,
            env=env,
            start_new_session=True,
        )
        try:
            code = _waited(process, seconds, unwanted)
        finally:
            _end(process)
        return Done(code, _text(stdout), _text(stderr))


def _waited(process: subprocess.Popen[bytes], seconds: float, unwanted: threading.Event | None) -> int | None:
    until = time.monotonic() + seconds
    while unwanted is None or not unwanted.is_set():
        left = until - time.monotonic()
        if left <= 0:
            break
        with suppress(subprocess.TimeoutExpired):
            return process.wait(left if unwanted is None else min(left, _LOOK_S))
    return None


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is not None:
        return
    process.terminate()
    # A program may have stopped its keeper.
    process.send_signal(signal.SIGCONT)
    try:
        process.wait(_GONE_S)
    except subprocess.TimeoutExpired:
        for pid in (*shim.descendants(process.pid), process.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait()


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read(_MOST_OUTPUT).decode(errors="replace")
