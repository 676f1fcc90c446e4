"""What is left of what ran: processes by where they live, whoever their parents are by now, and folders. Reads /proc."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path


def processes(folder: Path) -> list[str]:
    """Command lines of processes with a home, a working directory or a mount below the folder, and of their keepers."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        # It just ended, has nobody any more who would know it, or is another user's.
        with suppress(OSError):
            words = (place / "cmdline").read_bytes().decode(errors="replace").rstrip("\0").split("\0")
            if words != [""] and _lives(place, words, f"{folder}/"):
                found.append(" ".join(words))
    return found


def _lives(place: Path, words: list[str], folder: str) -> bool:
    environment = (place / "environ").read_bytes().decode(errors="replace").split("\0")
    if any(line.startswith(f"HOME={folder}") for line in environment) or str((place / "cwd").readlink()).startswith(
        folder
    ):
        return True
    if words[0] == "bwrap" and any(word.startswith(folder) for word in words):
        return True
    # Fields of a sandbox's mounts: the fourth is the folder within its file system, whose own place may lie above it.
    mounts = (place / "mountinfo").read_text().splitlines()
    return any(f"/{Path(folder).parent.name}/{Path(folder).name}/" in mount.split()[3] for mount in mounts)


def folders(folder: Path) -> list[str]:
    """Names of the folders that polarproxy made in the temporary folder `folder`."""
    return sorted(path.name for path in folder.glob("polarproxy-*"))
