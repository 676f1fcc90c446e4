"""A call that cannot be stored is not acknowledged: the client is told to come back, and never sees the end."""

import sqlite3
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from pathlib import Path

import aiohttp
import pytest
from sqlalchemy.exc import OperationalError

from polarproxy.errors import StoreUnavailable
from polarproxy.store.inbox import Done, Inbox
from polarproxy.store.items import Item
from polarproxy.store.recording import Recording
from polarproxy.store.writer import Writer
from tests.fakes import always, compose
from tests.fakes.faults import Faults
from tests.proxy.rig import BODY, IDS, Rig, Starter, until

REPLY = compose("one two three four")
STREAM = {**BODY, "stream": True}


class Broken:
    """Whether the store is broken right now."""

    now = True


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> Broken:
    state, write = Broken(), Recording.write

    def failing(self: Recording, items: list[Item]) -> None:
        if state.now:
            raise OperationalError("INSERT", None, Exception("database or disk is full"))
        write(self, items)

    monkeypatch.setattr(Recording, "write", failing)
    return state


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """The store neither commits nor fails."""

    def nothing(self: Writer, group: list[tuple[Item, Future[None]]]) -> None:
        return

    monkeypatch.setattr(Writer, "_commit", nothing)


async def seen_of_a_stream(rig: Rig) -> bytes:
    seen = bytearray()
    async with rig.asking(STREAM) as response:
        with suppress(aiohttp.ClientError):
            async for piece in response.content.iter_any():
                seen += piece
            raise AssertionError("the stream ended as if it were whole")
    return bytes(seen)


async def test_a_whole_reply_becomes_unavailable(start: Starter, broken: Broken) -> None:
    rig = await start(always(REPLY))
    answer = await rig.ask()
    assert (answer.status, answer.headers["Retry-After"], answer.error["type"]) == (503, "2", "ServiceUnavailable")
    assert "disk is full" in answer.error["message"]
    assert b"one two" not in answer.body
    assert rig.calls() == []
    assert rig.parts.stats.store_failures == 1


async def test_a_stream_is_cut_and_does_not_end(start: Starter, broken: Broken) -> None:
    rig = await start(always(REPLY))
    seen = await seen_of_a_stream(rig)
    assert seen.endswith(b"\n\n")
    assert b"[DONE]" not in seen
    assert b'"finish_reason":"stop"' not in seen
    assert rig.parts.stats.store_failures == 1


@pytest.mark.parametrize("fault", [Faults(status=400), Faults(status=500), Faults(refuse=True)], ids=str)
async def test_an_error_of_the_engine_is_not_acknowledged_either(start: Starter, broken: Broken, fault: Faults) -> None:
    rig = await start(always(REPLY, faults=fault))
    answer = await rig.ask()
    assert (answer.status, answer.headers["Retry-After"]) == (503, "2")
    assert rig.parts.stats.store_failures == 1


async def test_no_answer_of_the_store_is_a_failure(start: Starter, silent: None) -> None:
    rig = await start(always(REPLY), store_timeout=0.2)
    answer = await rig.ask()
    assert (answer.status, answer.headers["Retry-After"]) == (503, "2")
    assert b"one two" not in answer.body


async def test_no_answer_of_the_store_ends_a_stream(start: Starter, silent: None) -> None:
    rig = await start(always(REPLY), store_timeout=0.2)
    seen = await seen_of_a_stream(rig)
    assert seen
    assert b"[DONE]" not in seen


async def test_trying_again_helps_when_the_store_is_well_again(start: Starter, broken: Broken) -> None:
    rig = await start(always(REPLY))
    assert (await rig.ask()).status == 503
    broken.now = False
    assert (await rig.ask(IDS | BODY)).status == 200
    # The first one has no record; its place in the session stays free.
    assert [captured.call.ordinal for captured in await rig.recorded(1)] == [1]


async def test_with_a_full_queue_the_engine_is_not_even_asked(start: Starter, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = await start(always(REPLY))
    await rig.ask(prefix="/s/before")
    monkeypatch.setattr(Writer, "full", property(lambda _: True))
    answer = await rig.ask()
    assert (answer.status, answer.headers["Retry-After"]) == (503, "2")
    assert len(rig.received) == 1


@pytest.mark.parametrize("body", [BODY, STREAM], ids=["whole", "stream"])
async def test_a_queue_that_fills_up_meanwhile_refuses_the_end(
    start: Starter, monkeypatch: pytest.MonkeyPatch, body: dict[str, object]
) -> None:
    def refuse(self: Inbox[Item], item: Item, done: Done) -> None:
        raise StoreUnavailable("too much waits to be stored: 1 call")

    rig = await start(always(REPLY))
    monkeypatch.setattr(Inbox, "put", refuse)
    if body is STREAM:
        assert b"[DONE]" not in await seen_of_a_stream(rig)
    else:
        assert (await rig.ask()).status == 503


async def test_an_abort_that_cannot_be_stored_is_counted(start: Starter, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Inbox[Item], item: Item, done: Done) -> None:
        raise StoreUnavailable("too much waits to be stored: 1 call")

    rig = await start(always(REPLY, faults=Faults(hold_after=2)))
    monkeypatch.setattr(Inbox, "put", refuse)
    async with rig.asking(STREAM) as response:
        await response.content.readuntil(b"\n\n")
        response.close()
    await rig.engine.until(lambda engine: bool(engine.disconnects))
    await until(lambda: rig.parts.stats.store_failures == 1)


async def test_a_store_that_cannot_be_read_refuses_before_the_engine_is_asked(start: Starter) -> None:
    rig = await start(always(REPLY))
    with rig.parts.repository._writing.begin() as connection:
        connection.exec_driver_sql("ALTER TABLE sessions RENAME TO elsewhere")
    answer = await rig.ask()
    assert (answer.status, answer.headers["Retry-After"]) == (503, "2")
    assert rig.received == []


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Another process writes to the database, and does not end."""
    other = sqlite3.connect(folder / "polar.db", isolation_level=None, timeout=20.0)
    other.execute("BEGIN IMMEDIATE")
    yield
    other.execute("ROLLBACK")
    other.close()


async def test_a_lock_that_is_held_for_longer_than_is_waited(start: Starter, tmp_path: Path) -> None:
    rig = await start(always(REPLY), store_timeout=0.3)
    assert (await rig.ask()).status == 200
    with locked(tmp_path):
        refused = await rig.ask()
        assert (refused.status, refused.headers["Retry-After"]) == (503, "2")
        assert b"[DONE]" not in await seen_of_a_stream(rig)
        for path, body in (
            ("/api/sessions", {}),
            ("/api/sessions/s1/close", {}),
            ("/api/sessions/s1/rewards", {"aggregate_reward_score": 1.0}),
        ):
            answer = await rig.control("POST", path, body)
            assert (answer.status, "did not commit within 0.3 s" in answer.error["message"]) == (503, True)
    # It may be stored after all; the connections wait for no longer than the lock was held.
    await until(lambda: not rig.parts.writer.waiting)
    assert (await rig.ask(prefix="/s/s2")).status == 200
