"""Folders of our own in the temporary folder. A lock says that its maker lives; otherwise the next who comes removes it."""

from __future__ import annotations

import fcntl
import os
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Self, get_args

from polarproxy.rollout.runtimes.clearing import FOLDER, clear
from polarproxy.rollout.runtimes.orphans import kill_orphans

if TYPE_CHECKING:
    from types import TracebackType

Purpose = Literal["run", "tasks", "check", "judge"]
"""What such folders are for, as their names say: `polarproxy-run-…`."""
_LOCK = "lock"
_NEW = "lock.new"
_SETTLED_S = 60.0
"""Age of a folder that has still, or no more, no lock and nothing else in it."""


class OwnFolder:
    """A new one; the end of a `with` block removes it. Its lock goes with this process, however that ends.

    Raises OSError when it cannot be made, and leaves nothing then.
    """

    def __init__(self, purpose: Purpose) -> None:
        self.path = Path(tempfile.mkdtemp(prefix=_prefix(purpose)))
        new = self.path / _NEW
        self._lock: int | None = None
        try:
            self._lock = os.open(new, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_EX)
            # Under its name it was never without.
            new.rename(self.path / _LOCK)
        except OSError:
            self.remove()
            self.release()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.remove()
        finally:
            self.release()

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
    for purpose in get_args(Purpose):
        for path in Path(tempfile.gettempdir()).glob(f"{_prefix(purpose)}*"):
            # Others may be sweeping too, or it is none of ours.
            with suppress(OSError):
                _sweep(path)


def _prefix(purpose: Purpose) -> str:
    return f"polarproxy-{purpose}-"


def _sweep(path: Path) -> None:
    at = os.open(path, FOLDER)
    try:
        if os.geteuid() not in (0, os.fstat(at).st_uid):
            return
        if _is_shell(at):
            clear(at)
            path.rmdir()
            return
        lock = os.open(_LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=at)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            kill_orphans(path)
            _remove(path, at)
        finally:
            os.close(lock)
    finally:
        os.close(at)


def _is_shell(at: int) -> bool:
    """Whether its process was killed just before it had a lock, or when it had none any more."""
    return set(os.listdir(at)) <= {_NEW} and time.time() - os.fstat(at).st_mtime > _SETTLED_S


def _remove(path: Path, at: int) -> None:
    # The lock comes last: a folder that is half removed is swept as well.
    if clear(at, but=_LOCK):
        with suppress(FileNotFoundError):
            os.unlink(_LOCK, dir_fd=at)
        path.rmdir()
