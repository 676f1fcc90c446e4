"""What processes use, read off /proc for all runtimes at once: one look serves whoever asks within a moment."""

from __future__ import annotations

import asyncio
import errno
import os
import stat
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

ENDLESS = 1 << 62
_FRESH_S = 0.3
_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class Use:
    """Of a process and all that it started."""

    processes: int
    """Threads are counted, as the kernel's own limit does."""
    memory: int
    """Bytes of memory that is not shared with a file."""
    deleted: int
    """Bytes of files that are open and have no name any more, also of those that never left memory."""


class Census:
    """All processes by their parent. On a machine without /proc there are none, so that no limit is ever passed."""

    def __init__(self) -> None:
        self._at = -1.0
        self._children: dict[int, list[int]] = {}
        self._threads: dict[int, int] = {}
        self._looking = asyncio.Lock()

    async def use(self, pid: int) -> Use:
        """Of the process `pid` and all below it, as of a moment ago."""
        async with self._looking:
            if time.monotonic() - self._at > _FRESH_S:
                self._children, self._threads = await asyncio.to_thread(_look)
                self._at = time.monotonic()
        found, ahead = [pid], [pid]
        while ahead:
            below = self._children.get(ahead.pop(), [])
            found += below
            ahead += below
        processes, memory = sum(self._threads.get(one, 0) for one in found), sum(_memory(one) for one in found)
        return Use(processes, memory, await asyncio.to_thread(_deleted, found))


def _look() -> tuple[dict[int, list[int]], dict[int, int]]:
    children: dict[int, list[int]] = {}
    threads: dict[int, int] = {}
    if not Path("/proc/self/stat").exists():
        return children, threads
    with os.scandir("/proc") as entries:
        names = [entry.name for entry in entries if entry.name.isdigit()]
    for name in names:
        try:
            fields = Path("/proc", name, "stat").read_bytes().rpartition(b")")[2].split()
        except OSError:
            continue
        # Of `proc_pid_stat(5)`: the parent is field 4, the number of threads 20; the two before state are gone.
        children.setdefault(int(fields[1]), []).append(int(name))
        threads[int(name)] = int(fields[17])
    return children, threads


def _memory(pid: int) -> int:
    try:
        fields = Path("/proc", str(pid), "statm").read_bytes().split()
    except OSError:
        return 0
    return max(0, int(fields[1]) - int(fields[2])) * _PAGE


def _deleted(pids: list[int]) -> int:
    # By what they are: processes inherit what is open from each other.
    found: dict[tuple[int, int], int] = {}
    for pid in pids:
        with suppress(OSError), os.scandir(f"/proc/{pid}/fd") as entries:
            for entry in entries:
                with suppress(OSError):
                    file = entry.stat()
                    if file.st_nlink == 0 and stat.S_ISREG(file.st_mode):
                        found[file.st_dev, file.st_ino] = file.st_blocks * 512
    return sum(found.values())


def size_of(folders: list[Path]) -> int:
    """Bytes that the folders occupy on disk. What vanishes meanwhile is not counted.

    A folder whose path is too long for the system counts as `ENDLESS`: only who wants to hide something makes one.
    """
    total = 0
    ahead = [str(folder) for folder in folders]
    while ahead:
        try:
            with os.scandir(ahead.pop()) as entries:
                for entry in entries:
                    total += entry.stat(follow_symlinks=False).st_blocks * 512
                    if entry.is_dir(follow_symlinks=False):
                        ahead.append(entry.path)
        except OSError as error:
            if error.errno == errno.ENAMETOOLONG:
                return ENDLESS
    return total
