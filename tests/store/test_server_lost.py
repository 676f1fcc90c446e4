"""A PostgreSQL server that dies, comes back, or falls silent under a running writer: what was acknowledged is there, once."""

import asyncio
import random
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import Engine

from polarproxy.errors import StoreUnavailable
from polarproxy.model import Call
from polarproxy.store.database import open_database
from polarproxy.store.repository import Repository
from polarproxy.store.shared_arrivals import SharedArrivals
from polarproxy.store.writer import Writer
from tests.postgres import Server, running
from tests.store.ordinals import ordinal
from tests.store.samples import a_call, new_call

SECONDS = 60
CLIENTS, KILLS = 12, 4


@pytest.fixture(scope="module")
def server(postgres: Server) -> Iterator[Server]:
    """One of our own, because it does not fare well. Where there is none, `postgres` has said so."""
    del postgres
    with running() as made:
        yield made


@pytest.fixture
def engine(server: Server) -> Iterator[Engine]:
    opened = open_database(server.fresh())
    yield opened
    opened.dispose()


def ids(repository: Repository, session: str = "s1") -> list[str]:
    return [captured.call.call_id for captured in repository.calls(session)]


def test_calls_are_refused_while_it_is_away_and_taken_when_it_is_back(
    server: Server, engine: Engine, repository: Repository, writer: Writer
) -> None:
    writer.submit(new_call(a_call("c0", 0))).result(SECONDS)
    server.kill()
    for number in (1, 2):
        with pytest.raises(StoreUnavailable, match="could not commit"):
            writer.submit(new_call(a_call(f"c{number}", number))).result(SECONDS)
    assert writer.trouble is not None
    server.start()
    # The very first one, although every connection that is held is dead.
    writer.submit(new_call(a_call("c1", 1))).result(SECONDS)
    assert writer.trouble is None
    assert ids(repository) == ["c0", "c1"]


def test_a_server_that_restarted_between_two_calls_is_not_noticed(
    server: Server, engine: Engine, repository: Repository, writer: Writer
) -> None:
    for number in range(3):
        writer.submit(new_call(a_call(f"c{number}", number))).result(SECONDS)
        server.kill()
        server.start()
    assert writer.failed == 0
    assert ids(repository) == ["c0", "c1", "c2"]


async def test_places_are_refused_while_it_is_away_and_go_on_when_it_is_back(server: Server, engine: Engine) -> None:
    arrivals = SharedArrivals(engine, SECONDS)
    assert [await ordinal(arrivals, "s1") for _ in range(2)] == [0, 1]
    server.kill()
    with pytest.raises(StoreUnavailable, match="cannot be read"):
        await ordinal(arrivals, "s1")
    # What is known stands.
    await arrivals.catch_up()
    await asyncio.to_thread(server.start)
    assert await ordinal(arrivals, "s1") == 2


async def test_a_silent_server_is_not_waited_for(
    server: Server, engine: Engine, repository: Repository, writer: Writer
) -> None:
    arrivals = SharedArrivals(engine, 0.2)
    assert await ordinal(arrivals, "s1") == 0
    await writer.write(new_call(a_call("c0", 0)), SECONDS)
    with server.frozen():
        with pytest.raises(StoreUnavailable, match=r"within 0\.2 s"):
            await writer.write(new_call(a_call("c1", 1)), 0.2)
        with pytest.raises(StoreUnavailable, match=r"within 0\.2 s"):
            await ordinal(arrivals, "s1")
    # It may have been stored after all; given again, it is stored once.
    await writer.write(new_call(a_call("c1", 1)), SECONDS)
    assert ids(repository) == ["c0", "c1"]
    again = SharedArrivals(engine, SECONDS)
    assert await ordinal(again, "s1") >= 2


def test_nothing_acknowledged_is_lost_or_doubled_however_often_it_dies(
    server: Server, engine: Engine, repository: Repository
) -> None:
    """Clients give a call again until it is acknowledged; the server dies in the middle of it, several times."""
    writer, over = Writer(engine), threading.Event()
    refused = [0] * CLIENTS
    ledger: list[list[Call]] = [list[Call]() for _ in range(CLIENTS)]

    def client(number: int) -> None:
        acknowledged = ledger[number]
        deadline = time.monotonic() + SECONDS
        while not over.is_set() and time.monotonic() < deadline:
            turn = len(acknowledged)
            call = a_call(f"c{number}-{turn}", turn, range(40 + turn), (turn, number), session_id=f"s{number}")
            try:
                writer.submit(new_call(call)).result(SECONDS)
            except StoreUnavailable:
                refused[number] += 1
                time.sleep(0.01)
            else:
                acknowledged.append(call)

    with ThreadPoolExecutor(CLIENTS) as pool:
        clients = [pool.submit(client, number) for number in range(CLIENTS)]
        dice = random.Random(7)
        for _ in range(KILLS):
            time.sleep(dice.uniform(0.05, 0.3))
            server.kill()
            time.sleep(dice.uniform(0.0, 0.1))
            server.start()
        before = [len(acknowledged) for acknowledged in ledger]
        deadline = time.monotonic() + SECONDS
        while any(len(own) <= then for own, then in zip(ledger, before, strict=True)) and time.monotonic() < deadline:
            time.sleep(0.01)
        over.set()
        for future in clients:
            future.result(SECONDS)
    writer.close()
    assert sum(refused) > 0
    assert all(len(own) > then for own, then in zip(ledger, before, strict=True))
    for number, acknowledged in enumerate(ledger):
        stored = [captured.call for captured in repository.calls(f"s{number}")]
        # The last one of a client may have been stored without its hearing of it.
        assert stored[: len(acknowledged)] == acknowledged
        assert len(stored) <= len(acknowledged) + 1
    assert list(repository.verify()) == []


def test_a_server_that_comes_back_with_less_than_it_had_takes_calls_that_need_no_more(server: Server) -> None:
    """A standby may lack the last commits, however they were acknowledged. What comes later must not build on them."""
    url = server.fresh()
    engine = open_database(f"{url}&options=-c%20synchronous_commit%3Doff")
    writer, repository = Writer(engine), Repository(engine)
    prompt = list(range(100))
    for number in range(30):
        writer.submit(new_call(a_call(f"c{number}", number, prompt, (number,)))).result(SECONDS)
        prompt = [*prompt, number, 1, 2]
    server.kill()
    with pytest.raises(StoreUnavailable):
        writer.submit(new_call(a_call("none", 30, prompt))).result(SECONDS)
    server.start()
    writer.submit(new_call(a_call("last", 31, prompt, (7,)))).result(SECONDS)
    writer.close()
    assert list(repository.call("last").call.prompt_token_ids or ()) == prompt
    assert list(repository.verify()) == []
    engine.dispose()
