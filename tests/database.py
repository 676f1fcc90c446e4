"""A migrated database for a test, without running the migrations again each time."""

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

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
