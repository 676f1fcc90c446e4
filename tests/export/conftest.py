"""A store, and a way to put sessions into it."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from polarproxy.model import Call, Reward, Session
from polarproxy.store.database import open_database
from polarproxy.store.items import Fact, NewCall
from polarproxy.store.migrate import upgrade
from polarproxy.store.repository import Repository
from polarproxy.store.schema import DELIVERED
from polarproxy.store.writer import Writer
from tests.export.exported import Fill
from tests.trajectory.build import WHEN, Said, call


@pytest.fixture
def repository(tmp_path: Path) -> Iterator[Repository]:
    engine = open_database(f"sqlite:///{tmp_path}/polar.db", create=True)
    upgrade(engine)
    yield Repository(engine)
    engine.dispose()


@pytest.fixture
def fill(repository: Repository, tmp_path: Path) -> Iterator[Fill]:
    engine = open_database(f"sqlite:///{tmp_path}/polar.db")
    writer = Writer(engine)

    def store(session: Session, calls: list[Call], reward: Reward | None) -> None:
        waiting = [writer.submit(session)]
        for made in calls:
            own = replace(made, session_id=session.session_id, call_id=f"{session.session_id}-{made.ordinal}")
            waiting.append(writer.submit(NewCall(own, session, {})))
            waiting.append(writer.submit(Fact(own.call_id, WHEN, DELIVERED, "yes")))
        for done in waiting:
            done.result(timeout=30)
        if reward is not None:
            repository.add_reward(session.session_id, reward)

    yield store
    writer.close()
    engine.dispose()


@pytest.fixture
def store(repository: Repository, fill: Fill) -> Repository:
    """Eight sessions of four groups, two turns each."""
    for place in range(8):
        made = Session(f"s{place}", WHEN, group_id=f"g{place // 2}", task_id=f"t{place // 2}")
        calls = [call(0, [1], Said([2])), call(1, [1, 2, 3], Said([4, 5]))]
        fill(made, calls, Reward(float(place % 2)))
    return repository


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "out"
    made.mkdir()
    return made
