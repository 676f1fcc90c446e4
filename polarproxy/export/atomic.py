"""Files that are there whole, or not at all."""

from __future__ import annotations

import os
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from polarproxy.errors import BadExport

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """A temporary path beside `path`, moved there when the block ends well. Raises `BadExport` when that cannot be."""
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
