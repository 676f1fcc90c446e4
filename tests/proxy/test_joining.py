"""A retry that comes while its reply is under way joins that reply: one generation, one call, every delivery on record."""

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from polarproxy.model import CallStatus, Dialect
from polarproxy.proxy.http.answer import Answer as EngineAnswer
from tests.fakes import Faults, always, compose
from tests.proxy.rig import BODY, IDS, Answer, Rig, Starter, until
from tests.proxy.speak import QUESTIONS, Question

REPLY = compose("one two three four")
HELD = always(REPLY, faults=Faults(hold_after=4))
WHOLE_HELD = always(REPLY, faults=Faults(hold_after=1))
STREAM = {**BODY, "stream": True}


def attempt(count: int, **more: str) -> dict[str, str]:
    return {"x-stainless-retry-count": str(count), **more}


def deliveries(folder: Path) -> list[str]:
    with sqlite3.connect(f"file:{folder}/polar.db?mode=ro", uri=True) as connection:
        rows = connection.execute("SELECT value FROM call_facts WHERE name = 'delivered' ORDER BY fact_id")
        return [value for (value,) in rows]


@asynccontextmanager
async def first_try(rig: Rig, body: dict[str, Any] = STREAM, **more: str) -> AsyncIterator[aiohttp.ClientResponse]:
    """A first try at a stream of which four events came."""
    async with rig.asking(body, headers=attempt(0, **more)) as response:
        yield response


async def events(response: aiohttp.ClientResponse, count: int) -> bytes:
    return b"".join([await response.content.readuntil(b"\n\n") for _ in range(count)])


async def joined(rig: Rig, count: int = 1) -> None:
    """Waits until so many listen with the first."""
    await until(lambda: sum(one.outlet.listening for one in rig.parts.underway._known.values()) == count)


@pytest.mark.parametrize("asked", [{}, IDS], ids=["plain", "everything"])
async def test_a_stream_goes_on_for_the_second_try_when_the_first_leaves(
    start: Starter, tmp_path: Path, asked: dict[str, Any]
) -> None:
    rig = await start(HELD)
    async with first_try(rig, STREAM | asked) as first:
        seen = await events(first, 3)
        retry = asyncio.create_task(rig.ask(STREAM | asked, headers=attempt(1)))
        await joined(rig)
        first.close()
    await until(lambda: not next(iter(rig.parts.underway._known.values())).outlet.open)
    assert rig.engine.disconnects == []
    rig.engine.release()
    answer = await retry
    assert (answer.status, answer.headers["Content-Type"]) == (200, "text/event-stream; charset=utf-8")
    assert answer.body.startswith(seen)
    assert answer.body.endswith(b"data: [DONE]\n\n")
    captured = await rig.delivered()
    call = captured.call
    assert (len(rig.received), call.status, call.ordinal) == (1, CallStatus.COMPLETED, 0)
    assert list(call.completions[0].token_ids) == REPLY.token_ids
    assert dict(call.headers)["x-stainless-retry-count"] == "0"
    assert deliveries(tmp_path) == ["yes, to try 1"]


@pytest.mark.parametrize("question", QUESTIONS, ids=str)
async def test_both_get_the_same_in_every_dialect(start: Starter, tmp_path: Path, question: Question) -> None:
    rig = await start(HELD if question.streamed or question.dialect is not Dialect.CHAT else WHOLE_HELD)
    url, data = f"{rig.base}/s/s1{question.path}", json.dumps(question.body).encode()

    def ask(count: int) -> asyncio.Task[Answer]:
        return asyncio.create_task(rig.send("POST", url, data, {"Content-Type": "application/json"} | attempt(count)))

    first = ask(0)
    await rig.engine.until(lambda _: bool(rig.engine.requests) and bool(rig.parts.underway._known))
    await until(lambda: next(iter(rig.parts.underway._known.values())).carrier is not None)
    second = ask(1)
    await joined(rig)
    rig.engine.release()
    one, other = await first, await second
    assert (one.status, other.status) == (200, 200)
    assert one.body == other.body
    ours = {"date"}
    assert {k: v for k, v in one.headers.items() if k.lower() not in ours} == {
        k: v for k, v in other.headers.items() if k.lower() not in ours
    }
    assert question.ends in one.body
    await rig.delivered()
    await until(lambda: len(deliveries(tmp_path)) == 2)
    assert sorted(deliveries(tmp_path)) == ["yes", "yes, to try 1"]
    assert rig.parts.underway._known == {}


async def test_a_whole_reply_goes_on_for_the_second_try_when_the_first_leaves(start: Starter) -> None:
    rig = await start(WHOLE_HELD)
    first = asyncio.create_task(rig.ask(headers=attempt(0)))
    await rig.engine.until(lambda _: bool(rig.received))
    second = asyncio.create_task(rig.ask(headers=attempt(1)))
    await joined(rig)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    await until(lambda: not next(iter(rig.parts.underway._known.values())).outlet.open)
    rig.engine.release()
    assert (await second).json["choices"][0]["message"]["content"] == "one two three four"
    assert ((await rig.delivered()).call.status, len(rig.received)) == (CallStatus.COMPLETED, 1)


OTHERS: dict[str, tuple[dict[str, Any], str, dict[str, str]]] = {
    "no count": (STREAM, "/s/s1", {}),
    "the same count": (STREAM, "/s/s1", attempt(0)),
    "another body": ({**STREAM, "seed": 1}, "/s/s1", attempt(1)),
    "another session": (STREAM, "/s/s2", attempt(1)),
    "another agent": (STREAM, "/s/s1", attempt(1, **{"x-session-id": "other"})),
    "no session of its own": (STREAM, "", attempt(1)),
}


@pytest.mark.parametrize(("body", "prefix", "said"), OTHERS.values(), ids=OTHERS)
async def test_without_evidence_it_is_a_call_of_its_own(
    start: Starter, body: dict[str, Any], prefix: str, said: dict[str, str]
) -> None:
    rig = await start(HELD)
    async with first_try(rig) as first:
        await events(first, 3)
        other = asyncio.create_task(rig.ask(body, prefix=prefix, headers=said))
        await rig.engine.until(lambda _: len(rig.received) == 2)
        rig.engine.release()
        assert (await other).status == 200


async def test_a_try_that_may_be_at_either_of_two_questions_is_a_call_of_its_own(start: Starter) -> None:
    rig = await start(HELD)
    async with first_try(rig) as first, first_try(rig) as twin:
        await events(first, 3)
        await events(twin, 3)
        twin.close()
        retry = asyncio.create_task(rig.ask(STREAM, headers=attempt(1)))
        await rig.engine.until(lambda _: len(rig.received) == 3)
        rig.engine.release()
        assert (await retry).body.endswith(b"data: [DONE]\n\n")
    assert len(await rig.recorded(3)) == 3


async def test_when_nobody_listens_any_more_the_engine_is_stopped(start: Starter) -> None:
    rig = await start(HELD)
    async with first_try(rig) as first, rig.asking(STREAM, headers=attempt(1)) as second:
        await events(first, 3)
        await events(second, 3)
        first.close()
        second.close()
    await rig.engine.until(lambda engine: bool(engine.disconnects))
    call = (await rig.call()).call
    assert (call.status, list(call.completions[0].token_ids)) == (CallStatus.ABORTED, REPLY.token_ids[:3])
    assert rig.parts.underway._known == {}


async def test_a_first_try_that_leaves_alone_is_aborted_as_ever(start: Starter) -> None:
    rig = await start(HELD)
    async with first_try(rig) as first:
        await events(first, 3)
        first.close()
    await rig.engine.until(lambda engine: bool(engine.disconnects))
    assert (await rig.call()).call.error == "the client left before the end of the reply"


async def test_what_is_being_stopped_is_joined_no_more(start: Starter, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second try comes after the first was seen to leave, and before all is put away."""
    leave, put_away = EngineAnswer.__aexit__, asyncio.Event()
    put_away.set()

    async def leave_slowly(self: EngineAnswer, *failed: Any) -> None:
        await put_away.wait()
        await leave(self, *failed)

    monkeypatch.setattr(EngineAnswer, "__aexit__", leave_slowly)
    rig = await start(HELD)
    async with first_try(rig) as first:
        await events(first, 3)
        (known,) = rig.parts.underway._known.values()
        put_away.clear()
        first.close()
    await until(known.task.cancelling)
    second = asyncio.create_task(rig.ask(STREAM, headers=attempt(1)))
    await rig.engine.until(lambda _: len(rig.received) == 2)
    put_away.set()
    rig.engine.release()
    assert (await second).body.endswith(b"data: [DONE]\n\n")
    assert [captured.call.status for captured in await rig.recorded(2)] == [CallStatus.ABORTED, CallStatus.COMPLETED]
    assert rig.parts.underway._known == {}


async def test_one_who_joined_may_leave_and_the_first_goes_on(start: Starter, tmp_path: Path) -> None:
    rig = await start(HELD)
    async with first_try(rig) as first:
        async with rig.asking(STREAM, headers=attempt(1)) as second:
            await events(second, 3)
            second.close()
        await joined(rig, 0)
        rig.engine.release()
        assert (await first.read()).endswith(b"[DONE]\n\n")
    await rig.delivered()
    assert deliveries(tmp_path) == ["yes"]


async def test_a_third_try_joins_too(start: Starter, tmp_path: Path) -> None:
    rig = await start(HELD)
    async with first_try(rig) as first:
        await events(first, 3)
        retries = []
        for count in (1, 2):
            retries.append(asyncio.create_task(rig.ask(STREAM, headers=attempt(count))))
            await joined(rig, count)
        first.close()
    rig.engine.release()
    one, other = await asyncio.gather(*retries)
    assert one.body == other.body
    await until(lambda: len(deliveries(tmp_path)) == 2)
    assert sorted(deliveries(tmp_path)) == ["yes, to try 1", "yes, to try 2"]
    assert len(rig.received) == 1


async def test_what_has_ended_is_never_given_again(start: Starter) -> None:
    rig = await start(always(REPLY))
    assert (await rig.ask(STREAM, headers=attempt(0))).status == 200
    assert (await rig.ask(STREAM, headers=attempt(1))).status == 200
    assert [captured.call.ordinal for captured in await rig.recorded(2)] == [0, 1]


@pytest.mark.parametrize("count", ["", "x", "-1", "9" * 5000, "1.5", "¹"])
async def test_a_count_that_is_none_joins_nothing(start: Starter, count: str) -> None:
    rig = await start(always(REPLY))
    sent = count.encode().decode("latin-1")
    assert (await rig.ask(STREAM, headers={"x-stainless-retry-count": sent})).status == 200


async def test_when_the_engine_fails_all_are_told(start: Starter, tmp_path: Path) -> None:
    rig = await start(always(REPLY, faults=Faults(status=500, hold_after=0)))
    first = asyncio.create_task(rig.ask(STREAM, headers=attempt(0)))
    await rig.engine.until(lambda _: bool(rig.received))
    second = asyncio.create_task(rig.ask(STREAM, headers=attempt(1)))
    await joined(rig)
    rig.engine.release()
    one, other = await first, await second
    assert (one.status, other.status, len(rig.received)) == (500, 500, 1)
    assert one.body == other.body
    rig.parts.writer.close()
    assert deliveries(tmp_path) == []


async def test_a_request_that_cannot_be_read_is_refused_as_ever(start: Starter) -> None:
    rig = await start(always(REPLY))
    straight = await rig.ask_engine(b"{", attempt(0))
    assert (await rig.ask(b"{", headers=attempt(0))).status == straight.status


async def test_a_client_may_ask_again_on_the_connection_of_its_first_try(start: Starter) -> None:
    """One answer to one request: nothing else is left on the connection."""
    rig = await start(always(REPLY))
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=1)) as http:
        for body in (STREAM, BODY) * 3:
            headers = attempt(0)
            async with http.post(f"{rig.base}/s/s1/v1/chat/completions", json=body, headers=headers) as response:
                assert response.status == 200
                assert (await response.read()).endswith(b"data: [DONE]\n\n" if body is STREAM else b"}")
    assert len(await rig.recorded(6)) == 6
