"""A migrated database for a test, without running the migrations again each time."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from polarproxy.store.database import open_database
from polarproxy.store.migrate import upgrade


@cache
def _migrated() -> bytes:
    with TemporaryDirectory() as folder:
        file = Path(folder) / "polar.db"
        engine = open_database(f"sqlite:///{file}", create=True)
        upgrade(engine)
        engine.dispose()
        return file.read_bytes()


def fresh(file: Path) -> str:
    """Makes `file` an empty database with the current schema; its URL."""
    file.write_bytes(_migrated())
    return f"sqlite:///{file}"


KINDS = ("sqlite", "postgresql")
"""What the fixture `url` of tests/store goes through."""

Databases = Callable[[], AbstractContextManager[str]]
"""Makes a database with the current schema and nothing in it; gives its URL until the block ends."""


@contextmanager
def temporary() -> Iterator[str]:
    """A SQLite database."""
    with TemporaryDirectory() as folder:
        yield fresh(Path(folder) / "polar.db")


ON_SQLITE = pytest.mark.parametrize("url", ["sqlite"], indirect=True)
ON_POSTGRESQL = pytest.mark.parametrize("url", ["postgresql"], indirect=True)
