"""Processes whose keeper was killed before it could end them: known by the home that they were given, and killed.

The second line of defence. A program may give itself another environment; then only its keeper finds it, or its sandbox.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

_ROUNDS = 50
_WAIT_S = 0.01


def kill_orphans(folder: Path) -> None:
    """Kills what has its HOME in the folder, and the sandboxes that show it to programs. Linux only; elsewhere none is found.

    Only processes of the folder's owner are looked at.
    """
    try:
        owner = folder.stat().st_uid
    except FileNotFoundError:
        return
    # What starts others may do so until it is dead itself.
    for _ in range(_ROUNDS):
        found = _found(os.fsencode(folder), owner)
        if not found:
            return
        for pid in found:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(_WAIT_S)


def _found(folder: bytes, owner: int) -> list[int]:
    if not Path("/proc/self/environ").exists():
        return []
    with os.scandir("/proc") as entries:
        pids = [int(entry.name) for entry in entries if entry.name.isdigit()]
    return [pid for pid in pids if _belongs(pid, folder, owner)]


def _belongs(pid: int, folder: bytes, owner: int) -> bool:
    try:
        place = Path("/proc", str(pid))
        if place.stat().st_uid not in (owner, os.geteuid()):
            return False
        words = (place / "cmdline").read_bytes().split(b"\0")
        if words[0] == b"bwrap" and folder + b"/home" in words:
            return True
        homes = [line[5:] for line in (place / "environ").read_bytes().split(b"\0") if line.startswith(b"HOME=")]
    except OSError:  # it just ended, or is none of ours
        return False
    return any(home == folder or home.startswith(folder + b"/") for home in homes)
