"""A writer with a spool, over databases that are really away: what was acknowledged is stored, once and in order."""

import asyncio
import errno
import os
import shutil
import sqlite3
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, update

from polarproxy.errors import BadSpool, SessionClosed, StoreConflict, StoreUnavailable
from polarproxy.model import Call, SessionStatus
from polarproxy.store.arrivals import Arrivals, OwnArrivals, arrivals_of
from polarproxy.store.draining import Drainer
from polarproxy.store.items import Fact, NewCall
from polarproxy.store.places import Place
from polarproxy.store.repository import Repository
from polarproxy.store.schema import DELIVERED, completions
from polarproxy.store.shared_arrivals import SharedArrivals
from polarproxy.store.spool import Spool
from polarproxy.store.spool_files import spool_files
from polarproxy.store.spool_opening import open_spool
from polarproxy.store.spool_records import encode, subject
from polarproxy.store.spooling import SpoolingWriter
from polarproxy.store.writer import Writer
from tests.database import KINDS, ON_POSTGRESQL, ON_SQLITE, fresh
from tests.postgres import Server, running
from tests.store.samples import NOW, a_call, a_session, new_call
from tests.store.test_exactly_once import deaf

SECONDS = 20.0
Away = Callable[[], AbstractContextManager[None]]


@pytest.fixture(scope="module")
def server(postgres: Server) -> Iterator[Server]:
    """One of our own, because it does not fare well."""
    del postgres
    with running() as made:
        yield made


@pytest.fixture(params=KINDS)
def url(request: pytest.FixtureRequest, file: Path) -> Iterator[str]:
    """As `tests/store/conftest.py` has it, but on a server that may be stopped."""
    if request.param == "postgresql":
        yield request.getfixturevalue("server").fresh()
    else:
        yield fresh(file)


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waiting for a lock ends soon; set before the engine is opened."""
    monkeypatch.setattr("polarproxy.store.database.BUSY_TIMEOUT_MS", 20)


@pytest.fixture
def engine(soon: None, engine: Engine) -> Engine:
    return engine


@pytest.fixture
def away(request: pytest.FixtureRequest, engine: Engine, file: Path) -> Away:
    """Makes the database go away until a block ends: the server is stopped, or another process writes for long."""

    @contextmanager
    def stopped() -> Iterator[None]:
        server: Server = request.getfixturevalue("server")
        server.kill()
        yield
        server.start()

    @contextmanager
    def locked() -> Iterator[None]:
        other = sqlite3.connect(file, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")
        other.close()

    return stopped if engine.dialect.name == "postgresql" else locked


@dataclass
class Kept:
    """What one process has."""

    spool: Spool
    arrivals: Arrivals
    writer: SpoolingWriter
    repository: Repository

    async def write(self, *items: Any) -> None:
        for item in items:
            await self.writer.write(item, SECONDS)

    async def arrive(self, call_id: str, session: str = "s1", prompt: int = 3) -> NewCall:
        """A call that came just now, as the recorder makes it when it ends."""
        place = await self.arrivals.arrive(session)
        made = new_call(a_call(call_id, place.ordinal, range(prompt), (1, 2), session_id=session))
        return made if place.arrived is None else replace(made, place=place)

    async def drained(self) -> None:
        """Returns when everything is in the database."""
        deadline = time.monotonic() + SECONDS
        while len(self.spool) or self.spool.away:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.01)

    def ids(self, session: str = "s1") -> list[str]:
        """Of the stored calls, by ordinal."""
        return [captured.call.call_id for captured in self.repository.calls(session)]


Keeping = Callable[[], AbstractAsyncContextManager[Kept]]


@pytest.fixture
def keeping(engine: Engine, tmp_path: Path) -> Keeping:
    """Starts a process, one after another, all with the same spool."""

    @asynccontextmanager
    async def process() -> AsyncIterator[Kept]:
        spool, repository = open_spool(tmp_path / "spool", "here"), Repository(engine)
        arrivals = arrivals_of(engine, repository, 1.0, spool)
        writer = SpoolingWriter(Writer(engine), spool, arrivals, engine)
        try:
            yield Kept(spool, arrivals, writer, repository)
        finally:
            await asyncio.to_thread(writer.close)

    return process


async def test_in_good_days_nothing_is_put_aside(keeping: Keeping, tmp_path: Path) -> None:
    async with keeping() as kept:
        for number in range(3):
            await kept.write(await kept.arrive(f"c{number}"))
        assert kept.ids() == ["c0", "c1", "c2"]
        assert spool_files(tmp_path / "spool") == []
        assert not kept.spool.away


async def test_calls_are_acknowledged_while_it_is_away_and_stored_when_it_is_back(keeping: Keeping, away: Away) -> None:
    async with keeping() as kept:
        await kept.write(await kept.arrive("c0"))
        with away():
            for number in range(1, 6):
                await kept.write(await kept.arrive(f"c{number}", prompt=3 + number))
                kept.writer.submit(Fact(f"c{number}", NOW, DELIVERED, "yes"))
            assert kept.spool.away
            assert kept.writer.trouble is None
            assert len(kept.spool) >= 5
        await kept.drained()
        await kept.write(await kept.arrive("c6"))
        await kept.drained()
        assert kept.ids() == [f"c{number}" for number in range(7)]
        assert [found.call.ordinal for found in kept.repository.calls("s1")] == list(range(7))
        assert [found.delivered for found in kept.repository.calls("s1")][1:6] == [True] * 5
        assert list(kept.repository.verify()) == []
        assert kept.writer.failed == 0


async def test_what_a_process_leaves_is_stored_by_the_next(keeping: Keeping, away: Away) -> None:
    async with keeping() as kept:
        await kept.write(await kept.arrive("c0"))
    with away():
        async with keeping_through(keeping) as kept:
            await kept.write(await kept.arrive("c1"), await kept.arrive("c2"))
    async with keeping() as kept:
        # It serves while it drains, and what comes now comes after.
        await kept.write(await kept.arrive("c3"))
        await kept.drained()
        assert kept.ids() == ["c0", "c1", "c2", "c3"]
        assert list(kept.repository.verify()) == []


@asynccontextmanager
async def keeping_through(keeping: Keeping) -> AsyncIterator[Kept]:
    """A process that knows session s1 from before; it starts while the database is away, which only this test can do."""
    async with keeping() as kept:
        kept.spool.away = True
        if isinstance(kept.arrivals, OwnArrivals):
            # Readers are not locked out.
            place = await kept.arrivals.arrive("s1")
            assert place.ordinal == 1
            kept.arrivals._live["s1"].next_ordinal = 1
        yield kept


async def test_draining_twice_stores_once(keeping: Keeping, away: Away, tmp_path: Path) -> None:
    """A crash after the commit leaves the records where they are."""
    folder, copy = tmp_path / "spool", tmp_path / "copy"
    async with keeping() as kept:
        await kept.write(await kept.arrive("c0"))
        with away():
            await kept.write(a_session("s2", task_id="t"), await kept.arrive("c1"), await kept.arrive("c2", "s2"))
            await kept.write(Fact("c1", NOW, DELIVERED, "yes"))
            shutil.copytree(folder, copy)
        await kept.drained()
        before = [kept.repository.calls(session) for session in ("s1", "s2")]
    for path in spool_files(copy):
        shutil.copy(path, folder)
    async with keeping() as kept:
        assert len(kept.spool) == 4
        await kept.drained()
        assert [kept.repository.calls(session) for session in ("s1", "s2")] == before
        assert kept.spool.refused == []
        assert kept.repository.session("s2").task_id == "t"
        with kept.repository._engine.begin() as connection:
            assert connection.exec_driver_sql("SELECT count(*) FROM call_facts").scalar_one() == 1


async def test_a_commit_of_which_nobody_heard_is_not_stored_again(keeping: Keeping, engine: Engine) -> None:
    async with keeping() as kept:
        item = await kept.arrive("c0")
        with deaf(engine):
            await kept.write(item)
        await kept.drained()
        assert kept.ids() == ["c0"]
        assert kept.spool.refused == []


async def test_a_session_that_is_made_meanwhile_is_what_it_was_made(
    keeping: Keeping, away: Away, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its calls bring a session of their own, which knows less: they go behind it, also when they could go past it."""
    async with keeping() as kept:
        with monkeypatch.context() as patched:
            patched.setattr(SpoolingWriter, "_drain_some", lambda _: False)
            with away():
                await kept.write(a_session("s2", task_id="task", group_id="group"))
            kept.spool.away = False
            await kept.write(await kept.arrive("c1", "s2"))
            kept.writer.submit(Fact("c1", NOW, DELIVERED, "yes")).result(SECONDS)
            assert (kept.spool.holds_call("c1"), len(kept.spool)) == (True, 3)
            await kept.write(await kept.arrive("c2", "s3"))
            assert kept.ids("s3") == ["c2"]
        await kept.drained()
        assert kept.repository.session("s2").task_id == "task"
        assert kept.ids("s2") == ["c1"]


async def test_what_nobody_waits_for_is_not_lost_either(keeping: Keeping, away: Away) -> None:
    async with keeping() as kept:
        first, second = await kept.arrive("c0"), await kept.arrive("c1")
        with away():
            kept.writer.submit(first).result(SECONDS)
            waiting = asyncio.create_task(kept.writer.write(second, SECONDS))
            await asyncio.sleep(0)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
        await kept.drained()
        await kept.drained()
        assert sorted(kept.ids()) == ["c0", "c1"]


async def test_what_the_writer_has_when_the_proxy_stops_goes_into_the_spool(
    keeping: Keeping, away: Away, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody waits for a call whose client left."""
    monkeypatch.setattr("polarproxy.store.spooling._PATIENCE_S", 0.05)
    async with keeping() as kept:
        items = [await kept.arrive(f"c{number}") for number in range(3)]
        with away():
            writing, began = kept.writer._writer, threading.Event()
            assert isinstance(writing, Writer)
            commit = writing._commit

            def slow(group: list[Any]) -> None:
                began.wait(1.0)
                commit(group)

            monkeypatch.setattr(writing, "_commit", slow)
            futures = [kept.writer.submit(item) for item in items]
            kept.writer._ending.set()  # nothing is drained any more
            await asyncio.to_thread(kept.writer.close)
            began.set()
            for future in futures:
                future.result(SECONDS)
            assert kept.writer.failed == 0
    async with keeping() as kept:
        await kept.drained()
        assert kept.ids() == ["c0", "c1", "c2"]


async def test_a_slow_disk_of_the_spool_is_waited_for(
    keeping: Keeping, away: Away, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody else could take the call, and one that is refused is sampled again."""
    async with keeping() as kept:
        item, append = await kept.arrive("c0"), kept.spool.append

        def slow(records: Any) -> None:
            time.sleep(0.5)
            append(records)

        with away():
            monkeypatch.setattr(kept.spool, "append", slow)
            await kept.writer.write(item, 0.1)
            assert kept.spool.holds_call("c0")
        await kept.drained()
        assert kept.ids() == ["c0"]


async def test_a_damaged_stored_call_does_not_stop_the_others(keeping: Keeping, away: Away, tmp_path: Path) -> None:
    folder, copy = tmp_path / "spool", tmp_path / "copy"
    async with keeping() as kept:
        with away():
            await kept.write(await kept.arrive("c0"))
            shutil.copytree(folder, copy)
        await kept.drained()
        with kept.repository._engine.begin() as connection:
            connection.execute(update(completions).values(token_ids=b"\0"))
    for path in spool_files(copy):
        shutil.copy(path, folder)
    async with keeping() as kept:
        await kept.write(await kept.arrive("c1", "s2"))
        await kept.drained()
        assert [refusal.held.about.call_id for refusal in kept.spool.refused] == ["c0"]
        assert "cannot be read" in kept.spool.refused[0].why
        assert kept.ids("s2") == ["c1"]


async def test_a_session_that_comes_behind_its_first_call_is_what_it_was_made(keeping: Keeping, away: Away) -> None:
    """The call went to the database through another proxy, which knew of no session."""
    meant = a_session("s2", task_id="task", group_id="group", metadata=(("seed", "7"),))
    async with keeping() as kept:
        with away():
            await kept.write(meant, a_session("other", task_id="task"))
            made = new_call(a_call("c0", 0, session_id="s2"))
            first = replace(made, session=a_session("s2", origin="path", model="m"))
            other = a_session("other", origin="api", task_id="not this")
        # The writer of the other proxy comes before the drain of this one, or behind it; both end alike.
        kept.writer._writer.submit(first).result(SECONDS)
        await kept.drained()
        assert kept.repository.session("s2") == meant
        kept.writer._writer.submit(meant).result(SECONDS)
        with pytest.raises(StoreConflict, match="session other contradicts what is stored"):
            kept.writer._writer.submit(other).result(SECONDS)
        assert kept.repository.session("other").task_id == "task"


async def test_a_writer_with_little_room_stores_facts_once(engine: Engine, tmp_path: Path) -> None:
    spool, repository, writer = open_spool(tmp_path / "spool", "here"), Repository(engine), Writer(engine, 2)
    drainer = Drainer(spool, writer, engine, arrivals_of(engine, repository, 1.0, spool).settle)
    items: list[Any] = [new_call(a_call(f"c{number}", number)) for number in range(9)]
    items += [Fact(f"c{number}", NOW, DELIVERED, "yes") for number in range(9)]
    spool.append([(encode(item), subject(item)) for item in items])
    commit = writer._commit

    def slow(group: list[Any]) -> None:
        time.sleep(0.02)
        commit(group)

    writer._commit = slow  # type: ignore[method-assign]
    for _ in range(100):
        await asyncio.to_thread(drainer.some)
    assert len(spool) == 0
    writer.close()
    spool.close()
    with engine.begin() as connection:
        assert connection.exec_driver_sql("SELECT count(*) FROM call_facts").scalar_one() == 9


async def test_what_contradicts_the_store_is_kept_and_told(keeping: Keeping, away: Away) -> None:
    async with keeping() as kept:
        with away():
            await kept.write(await kept.arrive("c0"))
            await kept.write(await kept.arrive("c1"))
        await kept.drained()
        with away():
            other = await kept.arrive("c1")
            await kept.write(replace(other, call=replace(other.call, path="/other")), await kept.arrive("c2"))
        await kept.drained()
        assert [refusal.held.about.call_id for refusal in kept.spool.refused] == ["c1"]
        assert "call c1 contradicts what is stored" in kept.spool.refused[0].why
        assert kept.ids() == ["c0", "c1", "c2"]


async def test_a_spool_that_is_full_refuses_and_the_database_is_asked_again(
    keeping: Keeping, away: Away, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    async with keeping() as kept:
        items = [await kept.arrive(f"c{number}") for number in range(3)]
        with away():
            with monkeypatch.context() as patched:
                patched.setattr(os, "pwrite", full)
                with pytest.raises(StoreUnavailable, match="cannot be written: No space left"):
                    await kept.writer.write(items[0], SECONDS)
                assert "No space left" in str(kept.writer.trouble)
            await kept.write(items[1])
            assert kept.writer.trouble is None
        await kept.drained()
        await kept.write(items[2])
        assert kept.ids() == ["c1", "c2"]
        assert kept.writer.failed == 1


async def test_an_item_that_no_record_can_hold_fails_alone(keeping: Keeping, away: Away) -> None:
    async with keeping() as kept:
        good = await kept.arrive("c0")
        bad = replace(good, call=replace(good.call, call_id="bad", path=object()))  # type: ignore[arg-type]
        with away():
            await asyncio.gather(kept.writer.write(good, SECONDS), _refused(kept, bad))
        await kept.drained()
        assert kept.ids() == ["c0"]


async def _refused(kept: Kept, item: NewCall) -> None:
    with pytest.raises(StoreUnavailable):
        await kept.writer.write(item, SECONDS)


# Places


@ON_POSTGRESQL
async def test_places_are_given_in_order_of_arrival_whatever_ends_first(keeping: Keeping, away: Away) -> None:
    async with keeping() as kept:
        before = await kept.arrive("c0")
        with away():
            early, middle, late = [await kept.arrive(f"c{number}") for number in (1, 2, 3)]
            assert all(item.place is not None and item.place.waits for item in (early, middle, late))
            await kept.write(late, before)
        await kept.drained()
        # One that ends after the database is back, and one that ends after others have come.
        await kept.write(early)
        after = await kept.arrive("c4")
        await kept.write(after, middle)
        await kept.drained()
        assert kept.ids() == ["c0", "c1", "c2", "c3", "c4"]


@ON_POSTGRESQL
async def test_calls_under_way_get_their_places_when_the_database_is_back(keeping: Keeping, away: Away) -> None:
    """Else each of them would go through the spool in its turn, and the next one of its session too, without end."""
    async with keeping() as kept:
        before = await kept.arrive("c0")
        with away():
            await kept.write(before)
            under_way = await kept.arrive("c1")
            assert under_way.place is not None
            assert under_way.place.waits
        await kept.drained()
        assert not under_way.place.waits
        await kept.write(under_way)
        assert (len(kept.spool), kept.ids()) == (0, ["c0", "c1"])


@ON_POSTGRESQL
async def test_a_place_that_waits_is_given_before_the_next_one_that_is_asked_for(keeping: Keeping) -> None:
    async with keeping() as kept:
        kept.spool.away = True
        waiting = [await kept.arrivals.arrive(session) for session in ("s1", "s2", "s1")]
        kept.spool.away = False
        asked = await asyncio.gather(*(kept.arrivals.arrive(session) for session in ("s1", "s2", "s3")))
        assert [place.ordinal for place in waiting] == [0, 0, 1]
        assert [place.ordinal for place in asked] == [2, 1, 0]


@ON_POSTGRESQL
async def test_places_are_given_in_order_of_arrival_after_a_restart(keeping: Keeping, away: Away) -> None:
    async with keeping() as kept:
        await kept.write(await kept.arrive("c0"))
        with away():
            first, second = await kept.arrive("c1"), await kept.arrive("c2")
            await kept.write(second, first)
            kept.writer._ending.set()  # as if it were killed: nothing is drained any more
            await asyncio.to_thread(kept.writer.close)
    async with keeping() as kept:
        last = await kept.arrive("c3")
        await kept.write(last)
        await kept.drained()
        assert kept.ids() == ["c0", "c1", "c2", "c3"]


@ON_POSTGRESQL
async def test_a_session_that_is_known_to_be_closed_stays_closed(keeping: Keeping, away: Away) -> None:
    async with keeping() as kept:
        for session in ("mine", "others", "again"):
            await kept.write(await kept.arrive(f"c-{session}", session))
            kept.repository.set_status(session, SessionStatus.COMPLETED)
        kept.arrivals.closed("mine", SessionStatus.COMPLETED)
        with pytest.raises(SessionClosed):
            await kept.arrivals.arrive("others")
        kept.arrivals.closed("again", SessionStatus.COMPLETED)
        kept.arrivals.closed("again", SessionStatus.OPEN)
        with away():
            kept.spool.away = True
            for session in ("mine", "others"):
                with pytest.raises(SessionClosed):
                    await kept.arrivals.arrive(session)
            assert (await kept.arrivals.arrive("again")).waits
        kept.spool.away = False


@ON_POSTGRESQL
async def test_a_silent_server_is_waited_for_once(keeping: Keeping, server: Server) -> None:
    async with keeping() as kept:
        await kept.write(await kept.arrive("c0"))
        with server.frozen():
            assert (await kept.arrivals.arrive("s1")).waits
            began = time.monotonic()
            places = [await kept.arrivals.arrive("s1") for _ in range(20)]
            await kept.arrivals.catch_up()
            # Less than one more answer would have been waited for.
            assert time.monotonic() - began < 0.9
            assert all(place.waits for place in places)
        assert isinstance(kept.arrivals, SharedArrivals)
        await asyncio.to_thread(kept.arrivals.settle)
        assert not any(place.waits for place in places)
        assert [place.ordinal for place in places] == sorted(place.ordinal for place in places)


@ON_SQLITE
async def test_a_new_process_counts_on_from_the_spool(keeping: Keeping, away: Away) -> None:
    with away():
        async with keeping() as kept:
            await kept.write(await kept.arrive("c0"), await kept.arrive("c1"))
        async with keeping() as kept:
            assert (await kept.arrivals.arrive("s1")).ordinal == 2


@ON_SQLITE
def test_a_call_without_a_place_has_none_in_sqlite(engine: Engine) -> None:
    with pytest.raises(BadSpool, match="only PostgreSQL can give it one"):
        OwnArrivals(Repository(engine)).restore(Place("s1", 0, 0, waits=True))


@ON_SQLITE
async def test_two_threads_of_calls_go_through_a_database_that_comes_and_goes(keeping: Keeping, away: Away) -> None:
    """Whatever is acknowledged is stored once, with every byte, over several changes."""
    ledger: list[Call] = []

    async def client(kept: Kept, name: str) -> None:
        for number in range(40):
            item = await kept.arrive(f"{name}-{number}", name, prompt=40 + number)
            await kept.writer.write(item, SECONDS)
            ledger.append(item.call)

    async with keeping() as kept:
        clients = [asyncio.create_task(client(kept, name)) for name in ("a", "b", "c")]
        while not all(task.done() for task in clients):
            with away():
                await asyncio.sleep(0.05)
            await asyncio.sleep(0.05)
        await asyncio.gather(*clients)
        await kept.drained()
        for name in ("a", "b", "c"):
            stored = [captured.call for captured in kept.repository.calls(name)]
            assert stored == [call for call in ledger if call.session_id == name]
        assert list(kept.repository.verify()) == []


async def test_a_spool_that_is_full_is_no_trouble_once_the_database_is_back(
    keeping: Keeping, away: Away, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found out without a call: none comes to a proxy that is not ready."""

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    async with keeping() as kept:
        item = await kept.arrive("c0")
        with away():
            with pytest.raises(StoreUnavailable, match="cannot be written: No space left"):
                await kept.writer.write(item, SECONDS)
            assert "No space left" in str(await kept.writer.look(0.01))
        assert await kept.writer.look(SECONDS) is None
        assert kept.ids() == []
        await kept.write(item)
        assert kept.ids() == ["c0"]
