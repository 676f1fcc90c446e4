"""A proxy goes on while its store is pruned: what it remembers of calls that are gone becomes nobody's base."""

from datetime import timedelta

import pytest
from sqlalchemy import Engine

from polarproxy.store.prune import Rule, prune
from polarproxy.store.repository import Repository
from polarproxy.store.writer import Writer
from tests.store.filled import turn
from tests.store.samples import NOW, a_session

SECONDS = 30


@pytest.fixture
def live(engine: Engine, writer: Writer) -> Writer:
    """It has stored two turns of a session that has been pruned since."""
    Repository(engine).add_session(a_session("old", created_at=NOW - timedelta(days=40)))
    for number in range(2):
        writer.submit(turn("old", number, days_ago=40)).result(SECONDS)
    assert sum(freed.sessions for freed in prune(engine, Rule(NOW - timedelta(days=30)))) == 1
    return writer


def test_other_sessions_do_not_build_on_what_is_gone(live: Writer, repository: Repository) -> None:
    for session in ("young", "younger"):
        for number in range(2):
            live.submit(turn(session, number)).result(SECONDS)
    assert list(repository.verify()) == []
    assert [len(repository.calls(session)) for session in ("young", "younger")] == [2, 2]


def test_a_session_that_is_gone_can_go_on(live: Writer, repository: Repository) -> None:
    new = turn("old", 2)
    live.submit(new).result(SECONDS)
    assert [captured.call for captured in repository.calls("old")] == [new.call]
    assert list(repository.verify()) == []
