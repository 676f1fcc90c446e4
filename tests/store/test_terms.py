"""What a session was made with is known with the place of each of its calls, also where the store cannot be asked."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest
from sqlalchemy import Engine, update

from polarproxy.errors import StoreDamaged, StoreUnavailable
from polarproxy.model import PromptMode, Session
from polarproxy.store.arrivals import Arrivals, OwnArrivals, arrivals_of
from polarproxy.store.database import for_writing, open_database
from polarproxy.store.items import NewCall
from polarproxy.store.repository import Repository
from polarproxy.store.schema import sessions
from polarproxy.store.shared_arrivals import SharedArrivals
from polarproxy.store.terms import SAMPLING, Terms
from polarproxy.store.writer import Writer
from tests.bench.process import free_port
from tests.database import temporary
from tests.postgres import Server
from tests.store.ordinals import ordinal
from tests.store.samples import a_call, a_session

SECONDS = 20
HALF = Terms(sampling={"temperature": msgspec.Raw(b"0.5")})


@dataclass
class Waits:
    """A spool in which records of some sessions wait."""

    away: bool = False
    sessions: tuple[str, ...] = ()

    def holds_session(self, session_id: str) -> bool:
        return session_id in self.sessions

    def next_ordinal(self, session_id: str) -> int:
        return 7 if session_id in self.sessions else 0


@pytest.fixture(params=["sqlite", "postgresql"])
def either(request: pytest.FixtureRequest) -> Iterator[Engine]:
    """A database of each kind."""
    databases = request.getfixturevalue("postgres").temporary if request.param == "postgresql" else temporary
    with databases() as url:
        engine = open_database(url)
        yield engine
        engine.dispose()


@pytest.fixture
def shared(postgres: Server) -> Iterator[Engine]:
    with postgres.temporary() as url:
        engine = open_database(url)
        yield engine
        engine.dispose()


def forced(session_id: str = "s1", **fields: object) -> Session:
    return a_session(session_id, origin="api", metadata=(("é\x00", "x"), (SAMPLING, '{"temperature":0.5}')), **fields)


async def terms(arrivals: Arrivals, session_id: str = "s1") -> Terms | None:
    """As a call hears of them that arrives now."""
    await arrivals.arrive(session_id)
    return arrivals.terms(session_id)


async def test_they_come_with_the_place(either: Engine) -> None:
    repository = Repository(either)
    repository.add_session(forced())
    repository.add_session(forced("both", prompts=PromptMode.EXACT))
    repository.add_session(a_session("exact", prompts=PromptMode.EXACT))
    repository.add_session(a_session("noted", metadata=(("note", f"not {SAMPLING}"),)))
    arrivals = arrivals_of(either, repository, SECONDS)
    assert arrivals.terms("s1") is None
    assert await terms(arrivals) == HALF
    assert await terms(arrivals, "both") == Terms(PromptMode.EXACT, HALF.sampling)
    assert await terms(arrivals, "exact") == Terms(PromptMode.EXACT)
    assert [await terms(arrivals, name) for name in ("noted", "unnamed")] == [Terms(), Terms()]


async def test_what_was_made_here_is_known_before_the_store_says_so(either: Engine) -> None:
    arrivals = arrivals_of(either, Repository(either), SECONDS)
    assert await terms(arrivals) == Terms()
    arrivals.made("s1", HALF)
    assert await terms(arrivals) == HALF
    assert await ordinal(arrivals, "s1") == 2


async def test_a_session_that_another_proxy_made_is_known_at_its_next_call(shared: Engine) -> None:
    """Also one that comes to the database behind its first call, through the other's spool."""
    arrivals, writer = SharedArrivals(shared, SECONDS), Writer(shared)
    assert await terms(arrivals) == Terms()
    writer.submit(NewCall(a_call("c1", 0, [1], [2]), a_session("s1", origin="header"), {})).result(SECONDS)
    assert await terms(arrivals) == Terms()
    writer.submit(forced()).result(SECONDS)
    assert await terms(arrivals) == HALF
    writer.close()


async def test_while_the_database_is_away_what_was_known_stands(shared: Engine) -> None:
    waits = Waits()
    Repository(shared).add_session(forced())
    arrivals = SharedArrivals(shared, SECONDS, waits)
    assert [await terms(arrivals), await terms(arrivals, "free")] == [HALF, Terms()]
    waits.away = True
    assert [await terms(arrivals), await terms(arrivals, "free"), await terms(arrivals, "new")] == [HALF, Terms(), None]
    arrivals.made("new", HALF)
    assert await terms(arrivals, "new") == HALF


async def test_with_a_spool_nothing_is_believed_for_later_of_a_database_that_did_not_answer() -> None:
    nobody = open_database(f"postgresql://nobody@127.0.0.1:{free_port()}/none")
    arrivals = SharedArrivals(nobody, SECONDS, Waits())
    assert await terms(arrivals) is None
    with pytest.raises(StoreUnavailable, match="the store cannot be read: connection"):
        await SharedArrivals(nobody, SECONDS).arrive("s1")


async def test_a_session_whose_making_waits_in_the_spool_is_not_known_until_it_is_stored(tmp_path: Path) -> None:
    """An earlier process left it there; its calls are served."""
    with temporary() as url:
        engine = open_database(url)
        repository, waits = Repository(engine), Waits(sessions=("s1", "s2", "s3"))
        arrivals = OwnArrivals(repository, waits)
        repository.add_session(a_session("s2", origin="header"))
        repository.add_session(forced("s3"))
        assert [await terms(arrivals, name) for name in ("s1", "s2", "s3")] == [None, None, HALF]
        repository.add_session(forced())
        waits.sessions = ()
        assert [await terms(arrivals, name) for name in ("s1", "s2", "s3")] == [HALF, Terms(), HALF]
        assert await ordinal(arrivals, "s1") == 9
        engine.dispose()


@pytest.mark.parametrize("metadata", [f"[[{SAMPLING}", f'[["{SAMPLING}","[]"]]', f'[["{SAMPLING}","' + "[" * 9000])
async def test_terms_that_cannot_be_read_refuse_the_calls_of_their_session_alone(either: Engine, metadata: str) -> None:
    repository = Repository(either)
    repository.add_session(forced())
    with for_writing(either).begin() as connection:
        connection.execute(update(sessions).values(metadata=metadata))
    arrivals = arrivals_of(either, repository, SECONDS)
    found = await asyncio.gather(*(arrivals.arrive(name) for name in ("a", "s1", "b")), return_exceptions=True)
    assert isinstance(found[1], StoreDamaged)
    assert "session s1: the sampling it was made with cannot be read" in str(found[1])
    assert [getattr(found[place], "ordinal", None) for place in (0, 2)] == [0, 0]
