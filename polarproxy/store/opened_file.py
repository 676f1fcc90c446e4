"""Whether a database file is still the one that was opened.

Who removes or replaces a SQLite file leaves those who have it open with a file that has no name any more. They could go on to
write to it, and all of it would be gone when they end.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from polarproxy.errors import StoreUnavailable

if TYPE_CHECKING:
    from pathlib import Path

Identity: TypeAlias = tuple[int, int]
"""Device and inode of a file."""


def look(path: Path) -> Identity | None:
    """Which file has the name now. None: there is none. Raises `StoreUnavailable` when that cannot be told."""
    try:
        status = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise StoreUnavailable(f"{path} cannot be looked at: {error.strerror}") from error
    return status.st_dev, status.st_ino


@dataclass(slots=True)
class OpenedFile:
    """A file under its name."""

    path: Path
    _known: Identity | None = None
    """When it was looked at first. None: it was not."""

    def require(self) -> None:
        """Raises `StoreUnavailable` when another file has the name, or none; one that is put back is as good as before."""
        found = look(self.path)
        self._known = self._known or found
        if found is None or found != self._known:
            state = "gone" if found is None else "another file now"
            raise StoreUnavailable(
                f"{self.path} is {state} and not the database that was opened; put that back, or start polarproxy again"
            )
