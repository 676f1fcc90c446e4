"""The command line in an empty working directory, and a database with something in it."""

import os
from pathlib import Path

import pytest

from polarproxy.model import CallStatus, Reward, RewardComponent
from polarproxy.store.database import open_database
from polarproxy.store.items import Fact
from polarproxy.store.repository import Repository
from polarproxy.store.schema import DELIVERED
from polarproxy.store.writer import Writer
from tests.cli.command import Command
from tests.database import fresh
from tests.store.samples import NOW, a_call, a_session, new_call

CHAT = b'{"model":"m","messages":[{"role":"user","content":"Say it [bold]."}]}'
TEXTS = {"t10": b"Hel", "t11": b"lo", "t12": b"!"}


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No settings but those that a test makes, and tables that are wide enough for what stands in them."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    for name in os.environ:
        if name.startswith("POLARPROXY_"):
            monkeypatch.delenv(name)


@pytest.fixture
def polarproxy(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(monkeypatch, capsys)


@pytest.fixture
def db(tmp_path: Path) -> str:
    """A group of two sessions: `good` with two turns and reward 1, `bad` with one turn, an aborted call and reward 0."""
    url = fresh(tmp_path / "recorded.db")
    engine = open_database(url)
    repository, writer = Repository(engine), Writer(engine)
    for session in ("good", "bad"):
        repository.add_session(a_session(session, group_id="g", task_id="g", harness="h"))
    calls = [
        a_call("c1", 0, (1, 2), (10, 11), session_id="good", request_body=CHAT),
        a_call("c2", 1, (1, 2, 10, 11, 3), (10, 12), session_id="good", request_body=CHAT),
        a_call("c3", 0, (1, 2), (10, 12), session_id="bad", request_body=CHAT),
        a_call("c4", 1, (1, 2, 4), (11,), session_id="bad", status=CallStatus.ABORTED, error="refused: [type=missing]"),
    ]
    for call in calls:
        writer.submit(new_call(call, **TEXTS)).result(20)
    for call_id in ("c1", "c2", "c3"):
        writer.submit(Fact(call_id, NOW, DELIVERED, "yes"))
    writer.close()
    repository.add_reward("good", Reward(1.0, (RewardComponent("tests", 1.0),)))
    repository.add_reward("bad", Reward(0.0))
    engine.dispose()
    return url
