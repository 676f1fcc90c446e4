"""A database of its own for every test, and a writer that is closed at its end."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine

from polarproxy.store.database import open_database
from polarproxy.store.repository import Repository
from polarproxy.store.writer import Writer
from tests.database import fresh


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "polar.db"


@pytest.fixture
def engine(file: Path) -> Iterator[Engine]:
    opened = open_database(fresh(file))
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
