"""What is known of the parameters that are forced upon a session, where the store cannot be asked."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from polarproxy.errors import StoreUnavailable
from polarproxy.proxy.forced import METADATA, ForcedSampling, read_forced
from polarproxy.store.database import open_database
from polarproxy.store.items import NewCall
from polarproxy.store.repository import Repository
from polarproxy.store.writer import Writer
from tests import database
from tests.bench.process import free_port
from tests.store.samples import a_call, a_session


@dataclass
class Waits:
    """A spool in which records of some sessions wait."""

    away: bool = False
    sessions: tuple[str, ...] = ()

    def holds_session(self, session_id: str) -> bool:
        return session_id in self.sessions

    def next_ordinal(self, session_id: str) -> int:
        return 0


def nobody() -> Repository:
    """Over a database that does not answer."""
    return Repository(open_database(f"postgresql://nobody@127.0.0.1:{free_port()}/none"))


async def test_without_a_spool_the_call_is_refused() -> None:
    with pytest.raises(StoreUnavailable, match="the store cannot be read: connection"):
        await ForcedSampling(nobody(), 5.0).of("s1")


async def test_with_a_spool_the_call_goes_on_and_nothing_is_believed_for_later() -> None:
    forced = ForcedSampling(nobody(), 5.0, Waits())
    assert await forced.of("s1") is None
    forced.made("s1", {"polarproxy.sampling": '{"temperature":0.5}'})
    found = await forced.of("s1")
    assert found is not None
    assert bytes(found["temperature"]) == b"0.5"


async def test_a_session_that_was_made_behind_its_first_call_is_known_soon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was made at another proxy, whose spool kept it while this one was asked."""
    monkeypatch.setattr("polarproxy.proxy.forced._FRESH_S", 0.0)
    engine = open_database(database.fresh(tmp_path / "polar.db"))
    writer = Writer(engine)
    forced = ForcedSampling(Repository(engine), 5.0, Waits())
    made = a_session("s1", origin="api", metadata=((METADATA, read_forced({"temperature": 1.0})),))
    assert await forced.of("s1") == {}
    writer.submit(NewCall(a_call("c1", 0, [1], [2]), a_session("s1", origin="header"), {})).result(10)
    writer.submit(made).result(10)
    found = await forced.of("s1")
    assert found is not None
    assert bytes(found["temperature"]) == b"1.0"
    writer.close()
    engine.dispose()


async def test_what_was_known_stands_while_the_database_is_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("polarproxy.proxy.forced._FRESH_S", 0.0)
    engine, waits = open_database(database.fresh(tmp_path / "polar.db")), Waits()
    forced = ForcedSampling(Repository(engine), 5.0, waits)
    assert await forced.of("s1") == {}
    waits.away = True
    assert await forced.of("s1") == {}
    assert await forced.of("s2") is None
    engine.dispose()
