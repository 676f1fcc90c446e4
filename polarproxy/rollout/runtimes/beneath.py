"""Files below a folder in which programs that nobody trusts may have made any link: none is followed."""

from __future__ import annotations

import os
import stat
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from polarproxy.errors import RuntimeFailed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path, PurePosixPath

LARGEST = 256 << 20
"""Bytes of a file that is read."""


def write(root: Path, path: PurePosixPath, content: bytes, *, mode: int, owner: int | None) -> None:
    """Makes or replaces a file, and the folders on its way. `owner` None: whoever runs this."""
    with _refusing(path), _parent(root, path, owner) as parent:
        # Whatever stands there, a link or another's file among it, makes room.
        with suppress(FileNotFoundError):
            os.unlink(path.name, dir_fd=parent)
        file = os.open(path.name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode, dir_fd=parent)
        with os.fdopen(file, "wb") as opened:
            opened.write(content)
            _own(file, owner)


def read(root: Path, path: PurePosixPath) -> bytes:
    """A file's bytes. Raises `FileNotFoundError`, and `RuntimeFailed` for what is no file or too large."""
    with _refusing(path), _parent(root, path, None, make=False) as parent:
        # Not to be kept waiting by a named pipe.
        file = os.open(path.name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=parent)
        with os.fdopen(file, "rb") as opened:
            if not stat.S_ISREG(os.fstat(file).st_mode):
                raise RuntimeFailed(f"{path} is no file")
            content = opened.read(LARGEST + 1)
    if len(content) > LARGEST:
        raise RuntimeFailed(f"{path} is larger than {LARGEST >> 20} MiB")
    return content


@contextmanager
def _refusing(path: PurePosixPath) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        raise RuntimeFailed(f"{path} cannot be used: {error.strerror}") from error


@contextmanager
def _parent(root: Path, path: PurePosixPath, owner: int | None, make: bool = True) -> Iterator[int]:
    """A descriptor of the folder that the file is in."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
    at = os.open(root, flags)
    try:
        for name in path.parts[:-1]:
            if make:
                with suppress(FileExistsError):
                    os.mkdir(name, 0o700, dir_fd=at)
                    os.chown(name, -1 if owner is None else owner, -1, dir_fd=at, follow_symlinks=False)
            below = os.open(name, flags, dir_fd=at)
            os.close(at)
            at = below
        yield at
    finally:
        os.close(at)


def _own(file: int, owner: int | None) -> None:
    if owner is not None:
        os.fchown(file, owner, owner)
