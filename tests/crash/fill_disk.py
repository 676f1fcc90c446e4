"""Fills the disk of the database to its last byte, under load, makes room again, and looks for what was lost.

    python -m tests.crash.fill_disk [--rounds 100] [--clients 32] [--db sqlite|postgresql] [--spool] [--seed N] [--work DIR]

The database lies on a small file system of its own (tmpfs), so that the system's own ENOSPC is met. Mounting one takes
root, or user namespaces, into which the program moves itself; PostgreSQL does not run in those. A server that gave up for
want of room is started again. Clients that are refused (503) ask again; with `--spool`, which lies elsewhere, nobody may
be refused.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import subprocess
import sys
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING

from tests import postgres
from tests.crash.program import Program, main
from tests.crash.stage import Database, a_database

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.crash.stage import Stage

_SIZE = {"sqlite": "128m", "postgresql": "384m"}


def can_mount() -> bool:
    """Whether this process may mount a file system."""
    return os.geteuid() == 0


def into_namespace() -> None:
    """Runs this program again where it may mount."""
    command = ["unshare", "--user", "--map-root-user", "--mount", sys.executable, "-m", "tests.crash.fill_disk"]
    os.execvp(command[0], [*command, *sys.argv[1:]])


@contextmanager
def small_disk(kind: str, _: Path) -> Iterator[Database]:
    """A database on a file system that can be filled."""
    # Where the user that PostgreSQL runs as may go, too.
    disk = Path(mkdtemp(prefix="polardisk-", dir="/tmp"))
    disk.chmod(0o755)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={_SIZE[kind]}", "tmpfs", str(disk)], check=True, timeout=30)
    try:
        if kind == "sqlite":
            with a_database(kind, disk) as database:
                yield database
        else:
            with postgres.running(disk, max_wal_size="64MB", min_wal_size="64MB") as server:
                yield Database(server.fresh(), None, server)
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True, timeout=30)
        disk.rmdir()


def fill(disk: Path) -> Path:
    """Takes every byte that is left; the file that holds them."""
    ballast = disk / "ballast"
    with ballast.open("ab", buffering=0) as file:
        for size in (1 << 20, 1 << 12):
            with suppress(OSError):
                while file.write(bytes(size)):
                    pass
    return ballast


def fill_for_good(database: Database) -> Path:
    """A write-ahead log that has grown would take some commits without any room: it is cut off first."""
    if database.server is not None:
        return fill(database.server.folder.parent)
    assert database.file is not None
    ballast = fill(database.file.parent)
    # What the log holds needs room in the database.
    os.truncate(ballast, max(0, ballast.stat().st_size - (8 << 20)))
    with closing(sqlite3.connect(database.file, timeout=30.0)) as other:
        other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return fill(database.file.parent)


async def once(stage: Stage) -> None:
    """One round."""
    await stage.play(0.05, 0.2)
    ballast = await asyncio.to_thread(fill_for_good, stage.database)
    await stage.play(0.2, 0.5)
    ballast.unlink()
    if stage.database.server is not None:
        await asyncio.to_thread(stage.database.server.start_again)
    await stage.recovered()


PROGRAM = Program("fill_disk", __doc__, once, place=small_disk)

if __name__ == "__main__":
    if not can_mount():
        into_namespace()
    sys.exit(main(PROGRAM))
