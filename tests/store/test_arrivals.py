"""Every call gets its place in its session when it arrives: from 0, without gaps or repeats, in a session that is open."""

import asyncio

import pytest
from sqlalchemy import Engine

from polarproxy.errors import SessionClosed, StoreUnavailable
from polarproxy.model import SessionStatus
from polarproxy.store.arrivals import OwnArrivals
from polarproxy.store.repository import Repository
from polarproxy.store.terms import Terms
from polarproxy.store.writer import Writer
from tests.database import ON_SQLITE
from tests.store.ordinals import ordinal
from tests.store.samples import a_call, a_session, new_call

pytestmark = ON_SQLITE


async def test_ordinals_start_at_0_in_each_session(repository: Repository) -> None:
    arrivals = OwnArrivals(repository)
    assert [await ordinal(arrivals, session) for session in ("a", "a", "b", "a", "b")] == [0, 1, 0, 2, 1]


async def test_they_go_on_after_a_restart(repository: Repository, writer: Writer) -> None:
    for number in (0, 1, 4):
        await writer.write(new_call(a_call(f"c{number}", number)), 20)
    arrivals = OwnArrivals(repository)
    assert [await ordinal(arrivals, "s1") for _ in range(2)] == [5, 6]


async def test_first_arrivals_at_the_same_time_do_not_share_an_ordinal(repository: Repository, writer: Writer) -> None:
    await writer.write(new_call(a_call("c0", 0)), 20)
    arrivals = OwnArrivals(repository)
    found = await asyncio.gather(*(ordinal(arrivals, "s1") for _ in range(50)))
    assert sorted(found) == list(range(1, 51))


async def test_who_leaves_while_the_state_is_read_takes_nobody_along(repository: Repository) -> None:
    arrivals = OwnArrivals(repository)
    tasks = [asyncio.create_task(ordinal(arrivals, "s1")) for _ in range(3)]
    await asyncio.sleep(0)
    tasks[0].cancel()
    done = await asyncio.gather(*tasks, return_exceptions=True)
    assert isinstance(done[0], asyncio.CancelledError)
    assert sorted(done[1:], key=str) == [0, 1]


async def test_a_session_closed_in_the_store_takes_no_calls(repository: Repository) -> None:
    repository.add_session(a_session("done", status=SessionStatus.COMPLETED))
    with pytest.raises(SessionClosed, match="done is closed"):
        await ordinal(OwnArrivals(repository), "done")


async def test_a_session_closed_under_way_takes_no_more_calls(repository: Repository) -> None:
    arrivals = OwnArrivals(repository)
    assert await ordinal(arrivals, "s1") == 0
    arrivals.closed("s1", SessionStatus.TIMEOUT)
    with pytest.raises(SessionClosed, match="timeout"):
        await ordinal(arrivals, "s1")


async def test_a_session_made_just_now_starts_at_0(repository: Repository) -> None:
    repository.add_session(a_session("mine"))
    arrivals = OwnArrivals(repository)
    arrivals.made("mine", Terms())
    assert await ordinal(arrivals, "mine") == 0


async def test_making_a_session_that_already_has_calls_under_way_repeats_no_ordinal(repository: Repository) -> None:
    arrivals = OwnArrivals(repository)
    assert await ordinal(arrivals, "mine") == 0
    repository.add_session(a_session("mine"))
    arrivals.made("mine", Terms())
    assert await ordinal(arrivals, "mine") == 1


async def test_only_idle_sessions_are_forgotten(
    repository: Repository, writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("polarproxy.store.arrivals._KEPT", 2)
    arrivals = OwnArrivals(repository)
    for session in ("busy", "b", "c", "d"):
        assert await ordinal(arrivals, session) == 0
        if session != "busy":
            arrivals.leave(session)
    assert await ordinal(arrivals, "busy") == 1


async def test_a_store_that_cannot_be_read_is_unavailable(engine: Engine, repository: Repository) -> None:
    with engine.begin() as connection:
        connection.exec_driver_sql("ALTER TABLE calls RENAME TO elsewhere")
    repository.add_session(a_session("mine"))
    with pytest.raises(StoreUnavailable, match="cannot be read"):
        await ordinal(OwnArrivals(repository), "mine")
