"""Removing what programs that nobody trusts left behind: no link is followed, no right is missing, nothing lies too deep.

Every step names one entry of an open folder. A path would lead through whatever a program put in its way meanwhile, could be
longer than the system allows, and would need one open folder for each level.
"""

from __future__ import annotations

import itertools
import os
import secrets
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
"""How a folder is opened that must be none by a link."""


def clear(root: int, *, but: str | None = None) -> bool:
    """Empties the folder of this descriptor, except for the entry `but`; whether it could.

    Nothing may be writing there any more. Folders below are moved up to be emptied, so that depth does not matter.
    """
    prefix, kept = secrets.token_hex(8), set() if but is None else {but}
    moved = (f"{prefix}-{number}" for number in itertools.count())
    stuck: set[str] = set()
    while names := set(os.listdir(root)) - kept - stuck:
        for name in names:
            try:
                _remove(root, name, moved)
            except OSError:
                stuck.add(name)
    return not stuck


def _remove(root: int, name: str, moved: Iterator[str]) -> None:
    try:
        os.unlink(name, dir_fd=root)
        return
    except (IsADirectoryError, PermissionError):  # what a folder is said to be differs between systems
        _unlock(root, name)
    inside = os.open(name, FOLDER, dir_fd=root)
    try:
        with os.scandir(inside) as entries:
            below = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
        for entry, is_folder in below:
            if is_folder:
                _unlock(inside, entry)
                os.rename(entry, next(moved), src_dir_fd=inside, dst_dir_fd=root)
            else:
                os.unlink(entry, dir_fd=inside)
    finally:
        os.close(inside)
    os.rmdir(name, dir_fd=root)


def _unlock(parent: int, name: str) -> None:
    """Gives us all rights on a folder. Root has them, and changes nothing."""
    if os.geteuid() == 0:
        return
    if hasattr(os, "O_PATH"):
        # Linux changes no rights without following a link, but for what is open already.
        opened = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=parent)
        try:
            os.chmod(f"/proc/self/fd/{opened}", 0o700)  # noqa: PTH101
        finally:
            os.close(opened)
    else:
        os.chmod(name, 0o700, dir_fd=parent, follow_symlinks=False)
