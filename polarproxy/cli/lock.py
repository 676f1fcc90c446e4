"""One proxy a SQLite file: the order of a session's calls is given out in the memory of one process."""

from __future__ import annotations

import fcntl
from contextlib import contextmanager
from typing import TYPE_CHECKING

from polarproxy.errors import BadSettings
from polarproxy.store.database import open_database, sqlite_file
from polarproxy.store.migrate import require_usable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from polarproxy.settings import Settings


@contextmanager
def only_proxy(settings: Settings) -> Iterator[None]:
    """Keeps a second proxy off the file while the block lasts; raises `BadSettings` when another one has it.

    Readers are not concerned. A database that is not a file is not locked. Raises `WrongDatabase` for a file that is no
    database of ours, beside which nothing is made.
    """
    path = sqlite_file(settings.db)
    if path is None or not path.parent.is_dir():
        yield
        return
    if path.exists():
        engine = open_database(settings.db)
        try:
            require_usable(engine)
        finally:
            engine.dispose()
    beside = path.with_name(path.name + ".lock")
    try:
        opened = beside.open("wb")
    except OSError as error:
        raise BadSettings(f"{beside}, which keeps other proxies off, cannot be made: {error.strerror}") from error
    with opened as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise BadSettings(f"another polarproxy records to {path}; stop it, or use another database") from error
        yield
