"""What is known of the parameters that are forced upon a session, where the store cannot be asked."""

from dataclasses import dataclass

import pytest

from polarproxy.errors import StoreUnavailable
from polarproxy.proxy.forced import ForcedSampling
from polarproxy.store.database import open_database
from polarproxy.store.repository import Repository
from tests.bench.process import free_port


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
