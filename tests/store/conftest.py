"""A database of its own for every test, of each kind in turn, and a writer that is closed at its end."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine

from polarproxy.store.database import open_database
from polarproxy.store.repository import Repository
from polarproxy.store.writer import Writer
from tests.database import KINDS, Databases, fresh, temporary
from tests.postgres import Server


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Of a SQLite database."""
    return tmp_path / "polar.db"


@pytest.fixture(params=KINDS)
def url(request: pytest.FixtureRequest, file: Path) -> Iterator[str]:
    """A database with the current schema and nothing in it. `ON_SQLITE` is for tests of one kind only."""
    if request.param == "sqlite":
        yield fresh(file)
        return
    with _postgres(request).temporary() as made:
        yield made


@pytest.fixture(params=KINDS, scope="session")
def databases(request: pytest.FixtureRequest) -> Databases:
    """For tests that need one database after another."""
    return temporary if request.param == "sqlite" else _postgres(request).temporary


def _postgres(request: pytest.FixtureRequest) -> Server:
    server: Server = request.getfixturevalue("postgres")
    return server


@pytest.fixture
def engine(url: str) -> Iterator[Engine]:
    opened = open_database(url)
    yield opened
    opened.dispose()


@pytest.fixture
def repository(engine: Engine) -> Repository:
    return Repository(engine)


@pytest.fixture
def writer(engine: Engine) -> Iterator[Writer]:
    made = Writer(engine)
    yield made
    made.close()
