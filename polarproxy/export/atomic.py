"""Files that are there whole, or not at all."""

from __future__ import annotations

import os
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from polarproxy.errors import BadExport

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def check_target(path: Path) -> None:
    """Raises `BadExport` when something is there that a file must not take the place of: a device, a pipe, a folder."""
    if path.exists() and not path.is_file():
        raise BadExport(
            f"{path} cannot be written: there is something already that is no regular file (a folder, a device, a pipe);"
            " name another file"
        )


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """A temporary path beside `path`, moved there when the block ends well. Raises `BadExport` when that cannot be."""
    check_target(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        with temporary.open("rb") as written:
            os.fsync(written.fileno())
        temporary.replace(path)
    except OSError as error:
        raise BadExport(f"{path} cannot be written: {error.strerror or error}") from error
    finally:
        # Gone already when all went well; never there when its folder is none.
        with suppress(FileNotFoundError, NotADirectoryError):
            temporary.unlink()
