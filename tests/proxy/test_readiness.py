"""`/readyz` says whether the next call would be taken: by what is read, what is committed, and a store that says nothing."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from polarproxy.store.arrivals import OwnArrivals
from polarproxy.store.trial import Trial
from polarproxy.store.writer import Writer
from tests.fakes import always, compose
from tests.postgres import Server, running
from tests.proxy.rig import Rig, Starter, rig

HELLO = always(compose("Hello."))


async def problems(one: Rig) -> list[str]:
    """Empty: it is ready."""
    answer = await one.send("GET", f"{one.base}/readyz")
    assert answer.status == (503 if answer.json["problems"] else 200)
    return list(answer.json["problems"])


async def ready(one: Rig) -> None:
    """Returns when it is; raises `TimeoutError`."""
    async with asyncio.timeout(20):
        while await problems(one):  # noqa: ASYNC110  (as a load balancer does)
            await asyncio.sleep(0.01)


@contextmanager
def locked(one: Rig) -> Iterator[None]:
    other = sqlite3.connect(one.parts.settings.db.removeprefix("sqlite:///"), isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    yield
    other.execute("ROLLBACK")
    other.close()


# SQLite


@pytest.mark.parametrize("busy_ms", [20, 60_000], ids=["refused", "waiting"])
async def test_a_locked_file_is_not_ready_until_it_is_free(
    start: Starter, monkeypatch: pytest.MonkeyPatch, busy_ms: int
) -> None:
    """Whether SQLite says so, or goes on waiting for the lock after the client was refused."""
    monkeypatch.setattr("polarproxy.store.database.BUSY_TIMEOUT_MS", busy_ms)
    one = await start(HELLO, store_timeout=5.0 if busy_ms < 1_000 else 0.2)
    with locked(one):
        assert (await one.ask()).status == 503
        # However long ago that was: nobody comes to a proxy that is not ready.
        for _ in range(3):
            assert (await problems(one))[-1].startswith("the store cannot commit: ")
    # Without a call.
    await ready(one)
    assert (await one.ask()).status == 200
    assert one.parts.writer.failed == (1 if busy_ms < 1_000 else 0)


async def test_a_table_that_cannot_be_read_is_not_ready(start: Starter) -> None:
    one = await start(HELLO)
    await ready(one)
    with one.parts.repository._writing.begin() as connection:
        connection.exec_driver_sql("ALTER TABLE sessions RENAME TO elsewhere")
    async with asyncio.timeout(20):
        while "the store cannot be read: no such table: sessions" not in await problems(one):
            pass
    assert (await one.ask()).status == 503
    with one.parts.repository._writing.begin() as connection:
        connection.exec_driver_sql("ALTER TABLE elsewhere RENAME TO sessions")
    await ready(one)
    assert (await one.ask()).status == 200


async def test_a_store_that_hangs_is_asked_once(start: Starter, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many ask, and however often; when it answers, so does the proxy."""
    monkeypatch.setattr("polarproxy.proxy.readiness.PATIENCE_S", 0.02)
    one, go, asked = await start(HELLO), asyncio.Event(), []

    async def slow(own: OwnArrivals) -> None:
        asked.append(own)
        await go.wait()

    with monkeypatch.context() as patched:
        patched.setattr(OwnArrivals, "look", slow)
        for _ in range(3):
            for found in await asyncio.gather(*(problems(one) for _ in range(5))):
                assert [said.startswith("the store has not answered for ") for said in found] == [True]
        assert asked == [one.parts.arrivals]
        go.set()
    await ready(one)


async def test_a_writer_that_hangs_is_tried_once(start: Starter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("polarproxy.proxy.readiness.PATIENCE_S", 0.02)
    one, commit, held = await start(HELLO, store_timeout=0.1), Writer._commit, []
    with monkeypatch.context() as patched:
        patched.setattr(Writer, "_commit", lambda _, group: held.append(group))
        assert (await one.ask()).status == 503
        for _ in range(3):
            for found in await asyncio.gather(*(problems(one) for _ in range(5))):
                assert "the store cannot commit: the store did not commit within 0.1 s" in found
    writer = one.parts.writer
    assert isinstance(writer, Writer)
    trials = [group for group in held if any(isinstance(item, Trial) for item, _ in group)]
    assert [len(group) for group in trials] == [1]
    commit(writer, trials[0])
    await ready(one)
    assert (await one.ask()).status == 200


async def test_a_full_queue_is_not_ready(start: Starter, monkeypatch: pytest.MonkeyPatch) -> None:
    one = await start(HELLO, queue_size=2)
    monkeypatch.setattr("polarproxy.store.inbox.Inbox.full", property(lambda _: True))
    assert (await one.ask()).status == 503
    assert "the store cannot commit: too much waits to be stored: 2 calls" in await problems(one)
    monkeypatch.undo()
    await ready(one)


# PostgreSQL


@pytest.fixture
def server(postgres: Server) -> Iterator[Server]:
    """One of our own, because it does not fare well. Where there is none, `postgres` has said so."""
    del postgres
    with running() as made:
        yield made


@pytest.fixture
async def one(server: Server, tmp_path: Path) -> AsyncIterator[Rig]:
    settings: dict[str, Any] = {"db": server.fresh(), "key_file": str(tmp_path / "key")}
    async with rig(tmp_path, HELLO, **settings) as made:
        yield made


async def test_a_server_that_is_stopped_is_not_ready_before_any_call_says_so(server: Server, one: Rig) -> None:
    assert (await one.ask()).status == 200
    await ready(one)
    server.kill()
    assert (await problems(one))[0].startswith("the store cannot be read: ")
    assert (await one.ask()).status == 503
    assert (await problems(one))[0].startswith("the store cannot be read: ")
    await asyncio.to_thread(server.start)
    await ready(one)
    assert (await one.ask()).status == 200


async def test_a_server_that_is_silent_is_not_ready_and_is_when_it_speaks(server: Server, one: Rig) -> None:
    assert (await one.ask()).status == 200
    with server.frozen():
        for _ in range(2):
            assert (await problems(one))[0].startswith("the store has not answered for ")
    await ready(one)
    assert (await one.ask()).status == 200


async def test_a_server_that_takes_no_more_is_tried_until_it_does(server: Server, one: Rig) -> None:
    """A standby, or one whose administrator made it read-only: it answers what is read."""
    name = one.parts.settings.db.partition("@/")[2].partition("?")[0]
    server.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    one.parts.repository._engine.dispose()
    assert (await one.ask()).status == 503
    for _ in range(2):
        assert any("read-only transaction" in said for said in await problems(one))
    server.execute(f"ALTER DATABASE {name} RESET default_transaction_read_only")
    one.parts.repository._engine.dispose()
    await ready(one)
    assert (await one.ask()).status == 200
