"""For all tests."""

import importlib.util
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests import postgres as postgresql

# A busy machine is slow, and that is no failure: properties say what comes out, never how soon.
settings.register_profile("polarproxy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("polarproxy")


@pytest.fixture(scope="session")
def postgres() -> Iterator[postgresql.Server]:
    """A PostgreSQL server for the whole run, started when the first test wants it."""
    if postgresql.binaries() is None:
        pytest.skip(postgresql.MISSING)
    if importlib.util.find_spec("psycopg") is None:
        pytest.skip("needs psycopg: pip install 'polarproxy[postgres]'")
    with postgresql.running() as server:
        yield server


@pytest.fixture(params=["sqlite", "postgresql"])
def empty(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of a database without any tables, of each kind in turn."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/polar.db"
        return
    server: postgresql.Server = request.getfixturevalue("postgres")
    made = server.empty()
    yield made
    server.drop(made)
