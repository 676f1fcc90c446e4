"""The folder of one run on this machine. Its lock says that whoever made it lives; otherwise the next who comes removes it."""

from __future__ import annotations

import fcntl
import os
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from polarproxy.rollout.runtimes.clearing import FOLDER, clear

PREFIX = "polarproxy-run-"
_LOCK = "lock"


class RunFolder:
    """A new one. Its lock goes with this process, however that ends."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix=PREFIX))
        new = self.path / f"{_LOCK}.new"
        self._lock: int | None = os.open(new, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        # Under its name it was never without.
        new.rename(self.path / _LOCK)

    def remove(self) -> None:
        """Removes it with all that is in it; may be called again. What cannot be removed is left lying."""
        # A process that is just being killed may still have made a file.
        for wait_s in (0.0, 0.05, 0.5):
            time.sleep(wait_s)
            try:
                at = os.open(self.path, FOLDER)
            except FileNotFoundError:
                return
            try:
                with suppress(OSError):
                    _remove(self.path, at)
            finally:
                os.close(at)
            if not self.path.exists():
                return

    def release(self) -> None:
        """Closes the lock; may be called again."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def sweep() -> None:
    """Removes the folders of this user whose processes were killed; root removes everybody's."""
    for path in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        # Others may be sweeping too, or it is none of ours.
        with suppress(OSError):
            _sweep(path)


def _sweep(path: Path) -> None:
    at = os.open(path, FOLDER)
    try:
        if os.geteuid() not in (0, os.fstat(at).st_uid):
            return
        lock = os.open(_LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=at)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _remove(path, at)
        finally:
            os.close(lock)
    finally:
        os.close(at)


def _remove(path: Path, at: int) -> None:
    # The lock comes last: a folder that is half removed is swept as well.
    if clear(at, but=_LOCK):
        with suppress(FileNotFoundError):
            os.unlink(_LOCK, dir_fd=at)
        path.rmdir()
