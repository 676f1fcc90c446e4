"""Files that are there whole, or not at all."""

from __future__ import annotations

import os
import time
from contextlib import contextmanager, suppress
from glob import escape
from typing import TYPE_CHECKING

from polarproxy.errors import BadExport

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_SQLITE = b"SQLite format 3\0"
_STALE_S = 600.0
"""Whoever still writes has written by then: names of processes are those of one machine, and a folder may be of several."""


def check_target(path: Path) -> None:
    """Raises `BadExport` when something is there that a file must not take the place of (a device, a pipe, a folder, a
    database), and for a name that no report can hold."""
    try:
        path.name.encode()
    except UnicodeEncodeError as error:
        raise BadExport(f"{path.name!a} cannot be written: a name must be UTF-8; name another file") from error
    if path.exists() and not path.is_file():
        raise BadExport(
            f"{path} cannot be written: there is something already that is no regular file (a folder, a device, a pipe);"
            " name another file"
        )
    if _is_database(path):
        raise BadExport(
            f"{path} cannot be written: it is a SQLite database, and may be the store itself; name another file"
        )


def _is_database(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(_SQLITE)) == _SQLITE
    except OSError:
        # Not there, or not to be read: whoever writes will say.
        return False


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """A temporary path beside `path`, moved there when the block ends well. Raises `BadExport` when that cannot be."""
    check_target(path)
    _clear(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        with temporary.open("rb") as written:
            os.fsync(written.fileno())
        temporary.replace(path)
    except OSError as error:
        raise BadExport(f"{path} cannot be written: {error.strerror or error}") from error
    finally:
        # Gone already when all went well; never there when its folder is none.
        with suppress(FileNotFoundError, NotADirectoryError):
            temporary.unlink()


def was_killed(path: Path) -> bool:
    """Whether a process that wrote to `path` is gone without having finished or given up, and none has finished since."""
    done = _changed(path) or 0.0
    return any(not _is_alive(process) and (_changed(left) or 0.0) > done for left, process in _temporaries(path))


def _changed(path: Path) -> float | None:
    """When it was written last. None: it is not there."""
    try:
        return path.stat().st_mtime
    except OSError:
        return None


def _temporaries(path: Path) -> Iterator[tuple[Path, int]]:
    """What is or was written to become `path`, and by which process."""
    for left in path.parent.glob(f".{escape(path.name)}.*.tmp"):
        process = left.name.removesuffix(".tmp").rpartition(".")[2]
        if process.isdecimal():
            yield left, int(process)


def _clear(path: Path) -> None:
    """Deletes what killed processes left beside `path`: nobody else ever would, and it may be as large as the file."""
    for left, process in _temporaries(path):
        # Others may be clearing, too, or the file may be another's.
        with suppress(OSError):
            if not _is_alive(process) and time.time() - left.stat().st_mtime > _STALE_S:
                left.unlink()


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        pass
    return True
