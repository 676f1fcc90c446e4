"""A process goes on telling the others of itself, whatever comes in between, and ends in order."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine

from polarproxy.errors import StoreUnavailable
from polarproxy.proxy.muster import Muster
from polarproxy.store.database import parse_url
from polarproxy.store.roster import Roster, Seen, UpstreamState
from tests.postgres import Server
from tests.proxy.rig import SECONDS, Rig, rig, until


@pytest.fixture
def url(postgres: Server) -> Iterator[str]:
    with postgres.temporary() as made:
        yield made


@pytest.fixture
async def one(url: str, tmp_path: Path) -> AsyncIterator[Rig]:
    async with asyncio.timeout(3 * SECONDS), rig(tmp_path, db=url, key_file=str(tmp_path / "key")) as made:
        yield made


@asynccontextmanager
async def another(one: Rig, url: str) -> AsyncIterator[tuple[Muster, Any]]:
    """Another process of the same database, which has one connection and no patience; and what holds that connection."""
    engine = create_engine(parse_url(url), pool_size=1, max_overflow=0, pool_timeout=0.01)
    parts = one.parts
    async with AsyncExitStack() as stack:
        stack.callback(engine.dispose)
        muster = Muster(engine, parts.fleet, parts.writer, parts.stats, parts.exact, parts.gate, 7)
        await muster.start()
        stack.push_async_callback(muster.close)
        yield muster, engine.connect


def reported() -> list[dict[str, Any]]:
    """What the event loop is told of from now on."""
    told: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: told.append(context))
    return told


def known(one: Rig) -> set[int | None]:
    return {report.worker for report in one.parts.muster.others}


async def test_no_connection_is_to_be_had_for_a_while(one: Rig, url: str) -> None:
    """That is no fault, and nothing to report."""
    faults = reported()
    async with another(one, url) as (muster, hold):
        await until(lambda: known(one) == {7} and len(muster.others) == 1)
        with hold():
            await until(lambda: muster.others == ())
            with pytest.raises(StoreUnavailable, match="could not be told to the others: QueuePool limit"):
                await muster.change("http://a", UpstreamState.DRAINING)
        await until(lambda: len(muster.others) == 1)
    await until(lambda: known(one) == set())
    assert faults == []


async def test_who_cannot_leave_ends_all_the_same(one: Rig, url: str) -> None:
    async with another(one, url) as (muster, hold):
        with hold():
            await muster.close()


async def test_a_fault_of_ours_is_told_and_does_not_end_the_telling(one: Rig) -> None:
    muster = one.parts.muster
    assert muster._roster is not None
    told = reported()
    muster._roster = failing = _Failing(muster._roster._engine, muster._roster._me)
    await until(lambda: failing.asked >= 2)
    assert [type(context["exception"]) for context in told] == [OSError]
    assert muster._telling is not None
    assert not muster._telling.done()


class _Failing(Roster):
    """The first question cannot even be asked."""

    asked = 0

    def tell(self, counts: str, changes: Any) -> Seen:
        self.asked += 1
        if self.asked == 1:
            raise OSError("too many open files")
        return super().tell(counts, changes)
