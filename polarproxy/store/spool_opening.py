"""Opening the spool in a folder: one process at a time has it, and it begins with what is there."""

from __future__ import annotations

import fcntl
import logging
from typing import TYPE_CHECKING

from polarproxy.errors import BadSpool
from polarproxy.store.spool import Spool
from polarproxy.store.spool_files import SUFFIX, spool_files, spool_folder, spool_folders, sync_folder
from polarproxy.store.spool_loading import load_file

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

log = logging.getLogger(__name__)

_LOCK = "lock"


def warn_of_strays(folder: Path, workers: Iterable[int | None]) -> None:
    """Says which folders hold records that none of these will store: there were more or other workers before."""
    own = {spool_folder(folder, number) for number in workers}
    for path in spool_folders(folder):
        if path not in own and spool_files(path):
            log.warning("nobody stores what is in %s; do it with: polarproxy db spool drain %s", path, path)


def in_use(folder: Path) -> bool:
    """Whether a process has the spool in a folder now."""
    try:
        lock = (folder / _LOCK).open("rb")
    except FileNotFoundError:
        return False
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def open_spool(folder: Path, database: str | None) -> Spool:
    """The spool in a folder, which is made if it is not there, with what it holds. `database` names where its records are to
    be stored; None: whatever it says itself.

    Raises `BadSpool` when another process has it, when what is in it is none of ours or belongs to another database.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / _LOCK).open("wb")
    except OSError as error:
        raise BadSpool(f"{folder} cannot be a spool: {error.strerror}") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        lock.close()
        raise BadSpool(f"another polarproxy uses the spool {folder}; give each a folder of its own") from error
    spool = Spool(folder, database, lock)
    try:
        _load(spool)
        sync_folder(folder)
    except OSError as error:
        spool.close()
        raise BadSpool(f"the spool {folder} cannot be read: {error.strerror}") from error
    except BadSpool:
        spool.close()
        raise
    return spool


def _load(spool: Spool) -> None:
    paths = spool_files(spool.folder)
    for stray in sorted({*spool.folder.glob(f"*{SUFFIX}")}.difference(paths)):
        raise BadSpool(f"{stray} has a name that no file of a spool has; name it back, or move it away")
    unread = [
        found for path in paths for found in spool.take_in(load_file(path, spool.database, last=path == paths[-1]))
    ]
    for held, why in unread:
        spool.refuse(held, why)
    if len(spool):
        log.warning("the spool %s holds %d records from before", spool.folder, len(spool))
