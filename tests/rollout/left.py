"""What is left of what ran: processes by where they live, whoever their parents are by now, and folders."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import psutil


def processes(folder: Path) -> list[str]:
    """Command lines of processes with a home, a working directory or a mount below the folder, and of their keepers."""
    return [
        " ".join(process.cmdline()) or process.name()
        for process in psutil.process_iter()
        if _lives(process, str(folder))
    ]


def _lives(process: psutil.Process, folder: str) -> bool:
    with suppress(psutil.Error, OSError):
        if process.status() == psutil.STATUS_ZOMBIE:
            return False
        if process.environ().get("HOME", "").startswith(f"{folder}/") or process.cwd().startswith(f"{folder}/"):
            return True
        if process.name() == "bwrap" and any(word.startswith(f"{folder}/") for word in process.cmdline()):
            return True
        # Fields of a sandbox's mounts: the fourth is the folder within its file system, whose own place may lie above it.
        mounts = Path(f"/proc/{process.pid}/mountinfo").read_text().splitlines()
        return any(f"/{Path(folder).name}/" in mount.split()[3] for mount in mounts)
    return False


def folders(folder: Path) -> list[str]:
    """Names of the folders that polarproxy made in the temporary folder `folder`."""
    return sorted(path.name for path in folder.glob("polarproxy-*"))
