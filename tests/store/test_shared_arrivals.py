"""Several proxies over one PostgreSQL database: places differ, and every decision is known to all."""

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import Engine, event

from polarproxy.errors import SessionClosed, StoreUnavailable
from polarproxy.model import SessionStatus
from polarproxy.store.arrivals import OwnArrivals, arrivals_of
from polarproxy.store.database import for_writing, open_database
from polarproxy.store.heads import Heads
from polarproxy.store.repository import Repository
from polarproxy.store.shared_arrivals import SharedArrivals
from polarproxy.store.terms import Terms
from polarproxy.store.writer import Writer
from tests.database import temporary
from tests.postgres import Server
from tests.store.ordinals import ordinal
from tests.store.samples import a_call, a_session, new_call

SECONDS = 20


@pytest.fixture
def url(postgres: Server) -> Iterator[str]:
    with postgres.temporary() as made:
        yield made


@pytest.fixture
def pair(url: str) -> Iterator[tuple[SharedArrivals, SharedArrivals]]:
    """Of two processes."""
    engines = [open_database(url) for _ in range(2)]
    yield SharedArrivals(engines[0], SECONDS), SharedArrivals(engines[1], SECONDS)
    for engine in engines:
        engine.dispose()


def test_which_counts_depends_on_the_database(engine: Engine, repository: Repository) -> None:
    assert isinstance(arrivals_of(engine, repository, SECONDS), SharedArrivals)
    with temporary() as url:
        file = open_database(url)
        assert isinstance(arrivals_of(file, Repository(file), SECONDS), OwnArrivals)
        file.dispose()


async def test_ordinals_start_at_0_in_each_session(pair: tuple[SharedArrivals, SharedArrivals]) -> None:
    first, second = pair
    assert [
        await ordinal(first, "a"),
        await ordinal(second, "a"),
        await ordinal(first, "b"),
        await ordinal(first, "a"),
    ] == [
        0,
        1,
        0,
        2,
    ]


async def test_no_two_arrivals_share_an_ordinal(pair: tuple[SharedArrivals, SharedArrivals]) -> None:
    sessions = ["a", "b", "c"]
    asked = [(session, arrivals) for _ in range(40) for session in sessions for arrivals in pair]
    found = await asyncio.gather(*(ordinal(arrivals, session) for session, arrivals in asked))
    for session in sessions:
        ordinals = [ordinal for (name, _), ordinal in zip(asked, found, strict=True) if name == session]
        assert sorted(ordinals) == list(range(80))
    for arrivals in pair:
        for session in sessions:
            own = [o for (name, by), o in zip(asked, found, strict=True) if by is arrivals and name == session]
            assert own == sorted(own), "one process gave places in another order than that of arrival"


async def test_arrivals_at_the_same_time_cost_a_few_questions(
    engine: Engine, pair: tuple[SharedArrivals, SharedArrivals]
) -> None:
    first, _ = pair
    asked: list[str] = []
    event.listen(first._heads._engine, "before_cursor_execute", lambda *args: asked.append(args[2]))
    await asyncio.gather(*(ordinal(first, f"s{number % 7}") for number in range(100)))
    assert len(asked) <= 2


async def test_they_go_on_after_the_last_stored_call(
    pair: tuple[SharedArrivals, SharedArrivals], writer: Writer
) -> None:
    """Of a database that was filled in another way, and of a counter that lags behind."""
    first, second = pair
    for number in (0, 1, 4):
        await writer.write(new_call(a_call(f"c{number}", number)), SECONDS)
    assert [await ordinal(first, "s1"), await ordinal(second, "s1")] == [5, 6]
    await writer.write(new_call(a_call("c9", 9)), SECONDS)
    assert [await ordinal(first, "s1"), await ordinal(second, "s1")] == [10, 11]


async def test_a_session_closed_by_one_is_closed_for_all(
    pair: tuple[SharedArrivals, SharedArrivals], repository: Repository
) -> None:
    first, second = pair
    repository.add_session(a_session("mine"))
    first.made("mine", Terms())
    assert [await ordinal(first, "mine"), await ordinal(second, "mine")] == [0, 1]
    repository.set_status("mine", SessionStatus.TIMEOUT)
    first.closed("mine", SessionStatus.TIMEOUT)
    for arrivals in pair:
        with pytest.raises(SessionClosed, match=r"mine is closed \(timeout\)"):
            await ordinal(arrivals, "mine")
        assert await ordinal(arrivals, "other") in (0, 1)
    repository.set_status("mine", SessionStatus.OPEN)
    assert [await ordinal(second, "mine") > 1, await ordinal(first, "mine") > 1] == [True, True]


async def test_closed_and_open_sessions_may_arrive_together(
    pair: tuple[SharedArrivals, SharedArrivals], repository: Repository
) -> None:
    first, _ = pair
    repository.add_session(a_session("done", status=SessionStatus.COMPLETED))
    found = await asyncio.gather(*(ordinal(first, name) for name in ("a", "done", "b")), return_exceptions=True)
    assert [found[0], found[2]] == [0, 0]
    assert isinstance(found[1], SessionClosed)


async def test_a_policy_version_set_at_one_is_known_to_all(
    pair: tuple[SharedArrivals, SharedArrivals], repository: Repository
) -> None:
    first, second = pair
    assert repository.set_policy_version(3) == 3
    await ordinal(first, "a")
    assert (first.policy_version, second.policy_version) == (3, 0)
    await second.catch_up()
    assert second.policy_version == 3


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_a_policy_version_is_never_taken_back(kind: str, request: pytest.FixtureRequest) -> None:
    databases = request.getfixturevalue("postgres").temporary if kind == "postgresql" else temporary
    with databases() as url:
        engine = open_database(url)
        repository = Repository(engine)
        assert repository.latest_policy_version() == 0
        assert [repository.set_policy_version(version) for version in (0, 2, 1, 2, 7)] == [0, 2, 2, 2, 7]
        assert repository.latest_policy_version() == 7
        engine.dispose()


def test_setting_versions_at_once_ends_with_the_latest(url: str) -> None:
    engines = [open_database(url) for _ in range(4)]
    with ThreadPoolExecutor(len(engines)) as pool:
        versions = [1, 5, 3, 5, 2, 5, 4, 1]
        for number, version in enumerate(versions):
            pool.submit(Repository(engines[number % len(engines)]).set_policy_version, version)
    assert Repository(engines[0]).latest_policy_version() == 5
    for engine in engines:
        engine.dispose()


async def test_who_leaves_while_the_database_is_asked_takes_nobody_along(
    pair: tuple[SharedArrivals, SharedArrivals],
) -> None:
    first, _ = pair
    tasks = [asyncio.create_task(ordinal(first, "s1")) for _ in range(4)]
    await asyncio.sleep(0)
    tasks[0].cancel()
    tasks[2].cancel()
    done = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(result) for result in done[::2]] == [asyncio.CancelledError] * 2
    kept = [result for result in done[1::2] if isinstance(result, int)]
    assert len(set(kept)) == 2


async def test_a_store_that_cannot_be_read_is_unavailable(
    engine: Engine, pair: tuple[SharedArrivals, SharedArrivals]
) -> None:
    first, _ = pair
    with for_writing(engine).begin() as connection:
        connection.exec_driver_sql("ALTER TABLE session_heads RENAME TO elsewhere")
    with pytest.raises(StoreUnavailable, match="cannot be read"):
        await ordinal(first, "s1")
    with for_writing(engine).begin() as connection:
        connection.exec_driver_sql("ALTER TABLE elsewhere RENAME TO session_heads")
    assert await ordinal(first, "s1") == 0


async def test_a_store_that_is_silent_is_unavailable(engine: Engine) -> None:
    arrivals = SharedArrivals(engine, 0.1)
    with for_writing(engine).begin() as holding:
        holding.exec_driver_sql("LOCK TABLE session_heads")
        with pytest.raises(StoreUnavailable, match=r"within 0\.1 s"):
            await ordinal(arrivals, "s1")
    # Who gave up is not counted; the next one waits for a question that is still under way.
    patient = SharedArrivals(engine, SECONDS)
    assert await ordinal(patient, "s1") >= 0


def test_many_processes_in_one_session(url: str) -> None:
    """Threads with engines of their own, without any event loop between them."""
    engines = [open_database(url) for _ in range(6)]

    def take(engine: Engine) -> list[int]:
        heads, places = Heads(engine), list[int]()
        for count in (1, 3, 2, 1, 5):
            given, _ = heads.take({"s1": count, "s2": 1})
            places += range(given["s1"].end - count, given["s1"].end)
        return places

    with ThreadPoolExecutor(len(engines)) as pool:
        found = [place for places in pool.map(take, engines) for place in places]
    assert sorted(found) == list(range(12 * len(engines)))
    for engine in engines:
        engine.dispose()
