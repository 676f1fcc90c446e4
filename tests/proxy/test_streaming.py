"""A stream is relayed event by event, and its end, like that of every reply, is held back until the call is stored."""

import asyncio
import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from polarproxy.model import CallStatus
from polarproxy.proxy.keepalive import KeepAlive
from polarproxy.store.arrivals import OwnArrivals
from polarproxy.store.inbox import Done
from polarproxy.store.items import Item, NewCall
from polarproxy.store.trial import Trial
from polarproxy.store.writer import Writer
from tests.fakes import Faults, always, compose
from tests.proxy.raw_engine import raw_engine, says, stream
from tests.proxy.rig import BODY, CHAT, IDS, Answer, Rig, Starter, until
from tests.proxy.server.raw_client import Peer, post

REPLY = compose("one two three four")
STREAM = {**BODY, "stream": True}
ASKED: dict[str, dict[str, Any]] = {"plain": {}, "everything": IDS}


async def read_event(response: Any) -> bytes:
    event: bytes = await response.content.readuntil(b"\n\n")
    return event


@pytest.mark.parametrize("asked", ASKED)
async def test_the_client_has_each_event_before_the_engine_sends_the_next(start: Starter, asked: str) -> None:
    """The engine waits at every place in turn; the client must already have all that came before it."""
    whole = await sent_events(start, asked)
    for place in range(1, len(whole) - 2):
        rig = await start(always(REPLY, faults=Faults(hold_after=place)))
        async with rig.asking(STREAM | ASKED[asked], headers={"X-Request-Id": "same"}) as response:
            seen = [await read_event(response) for _ in range(visible(whole[:place]))]
            assert stable(seen) == stable(whole)[: len(seen)]
            rig.engine.release()
            assert (await response.read()).endswith(b"[DONE]\n\n")


async def sent_events(start: Starter, asked: str) -> list[bytes]:
    rig = await start(always(REPLY))
    answer = await rig.ask_engine(STREAM | ASKED[asked], {"X-Request-Id": "same"})
    return [event + b"\n\n" for event in answer.events]


def visible(events: list[bytes]) -> int:
    """How many of the engine's events the client is to see by now: the last one says why the reply ended, and waits."""
    return sum(b'"finish_reason":null' in event for event in events)


def stable(events: list[bytes]) -> list[bytes]:
    return [event.split(b'"choices"')[-1] for event in events]


class Gate:
    """Stands before every commit of a call."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.reached = threading.Event()


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    gate, commit = Gate(), Writer._commit

    def gated(self: Writer, group: list[tuple[Item | Trial, Done]]) -> None:
        if any(isinstance(item, NewCall) for item, _ in group):
            gate.reached.set()
            assert gate.open.wait(20)
        commit(self, group)

    monkeypatch.setattr(Writer, "_commit", gated)
    yield gate
    gate.open.set()


async def reached(gate: Gate) -> None:
    assert await asyncio.to_thread(gate.reached.wait, 20)


@pytest.mark.parametrize("more", [{}, IDS, {"n": 2}, {"stream_options": {"include_usage": True}}], ids=str)
async def test_the_end_of_a_stream_waits_for_the_commit(start: Starter, gate: Gate, more: dict[str, Any]) -> None:
    rig = await start(always(REPLY))
    whole = (await rig.ask_engine({**STREAM, **more})).events
    asking = asyncio.create_task(collect(rig, {**STREAM, **more}, seen := bytearray()))
    await reached(gate)
    ends = [place for place, event in enumerate(whole) if b'"finish_reason":"' in event]
    await until(lambda: seen.count(b"\n\n") >= ends[-1])
    for _ in range(20):
        await asyncio.sleep(0)
    assert seen.count(b"\n\n") == ends[-1]
    assert seen.count(b'"finish_reason":"stop"') == more.get("n", 1) - 1
    assert b"[DONE]" not in seen
    assert rig.calls() == []
    gate.open.set()
    await asking
    assert stable(bytes(seen).split(b"\n\n")) == stable([*whole, b""])
    assert (await rig.delivered()).call.status is CallStatus.COMPLETED


async def collect(rig: Rig, body: dict[str, Any], into: bytearray) -> None:
    async with rig.asking(body) as response:
        async for piece in response.content.iter_any():
            into += piece


async def test_a_client_that_leaves_while_the_call_is_committed_is_recorded_once(start: Starter, gate: Gate) -> None:
    rig = await start(always(REPLY))
    async with rig.asking(STREAM) as response:
        await reached(gate)
        arrivals = rig.parts.arrivals
        assert isinstance(arrivals, OwnArrivals)
        assert arrivals._live["s1"].under_way == 0
        response.close()
    await until(lambda: rig.parts.fleet.members[0].in_flight == 0)
    gate.open.set()
    captured = await rig.call()
    assert (captured.call.status, captured.call.error, captured.delivered) == (CallStatus.COMPLETED, None, False)
    assert arrivals._live["s1"].under_way == 0
    assert (await rig.ask()).status == 200
    assert [captured.call.ordinal for captured in await rig.recorded(2)] == [0, 1]
    assert (rig.parts.stats.store_failures, rig.parts.writer.trouble) == (0, None)


async def test_the_times_of_a_stream_are_those_of_its_first_and_its_last_byte(start: Starter) -> None:
    rig = await start(always(REPLY, faults=Faults(hold_after=2)))
    async with rig.asking(STREAM) as response:
        await read_event(response)
        rig.engine.release()
        await response.read()
    timing = (await rig.call()).call.timing
    assert timing.first_byte_us is not None
    assert timing.last_byte_us is not None
    assert 0 < timing.first_byte_us < timing.last_byte_us


async def test_a_whole_reply_waits_for_the_commit(start: Starter, gate: Gate) -> None:
    rig = await start(always(REPLY))
    asking = asyncio.create_task(rig.ask())
    await reached(gate)
    for _ in range(20):
        await asyncio.sleep(0)
    assert not asking.done()
    assert rig.calls() == []
    gate.open.set()
    answer: Answer = await asking
    assert answer.json["choices"][0]["message"]["content"] == "one two three four"
    assert (await rig.delivered()).call.status is CallStatus.COMPLETED


ODD_ENDS = {
    "a number that is none": b'{"choices":[{"index":0,"delta":{},"finish_reason" : "stop","x":NaN}]}',
    "no UTF-8 in an index": b'{"choices":[{"index":"\xff","delta":{},"finish_reason":"length"}]}',
    "more behind it": b'{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]} ]',
    "an error": b'{"error":{"message":"the engine died","code":500}}',
}


@pytest.mark.parametrize("owner", ["vllm", "other"])
@pytest.mark.parametrize("end", ODD_ENDS)
async def test_an_end_that_only_the_client_can_read_waits_too(start: Starter, gate: Gate, owner: str, end: str) -> None:
    goes_on = b'{"choices":[{"index":0,"delta":{"content":"x"},"finish_reason": null,"x":NaN}]}'
    events = stream(goes_on, ODD_ENDS[end], b"no JSON either", b'{"choices":[],"usage":null}')
    async with raw_engine(says(events, "text/event-stream"), owner) as url:
        rig = await start(upstream=url)
        asking = asyncio.create_task(collect(rig, STREAM, seen := bytearray()))
        await reached(gate)
        await until(lambda: seen)
        for _ in range(20):
            await asyncio.sleep(0)
        assert bytes(seen) == b"data: " + goes_on + b"\n\n"
        gate.open.set()
        await asking
        assert bytes(seen) == events
        assert (await rig.delivered()).call.status is CallStatus.ENGINE_ERROR


async def test_a_refusal_waits_for_the_commit(start: Starter, gate: Gate) -> None:
    rig = await start(always(REPLY, faults=Faults(status=429, retry_after=3)))
    asking = asyncio.create_task(rig.ask())
    await reached(gate)
    assert not asking.done()
    gate.open.set()
    assert (await asking).status == 429
    assert (await rig.call()).call.status is CallStatus.REJECTED


async def test_what_the_client_saw_the_end_of_is_stored(start: Starter) -> None:
    """With no gate in the way: at the moment the reply ends, the call can be read."""
    rig = await start(always(REPLY))
    for number in range(20):
        body = STREAM if number % 2 else BODY
        await rig.ask(body, prefix=f"/s/n{number}")
        assert [captured.call.status for captured in rig.calls(f"n{number}")] == [CallStatus.COMPLETED]


async def test_many_streams_at_once_do_not_mix(start: Starter) -> None:
    rig = await start(lambda received: always(compose(str(received.json["messages"]))).turn(0))

    async def one(number: int) -> None:
        body = {**STREAM, "messages": [{"role": "user", "content": f"number {number}"}]}
        answer = await rig.ask(body, prefix=f"/s/n{number % 5}")
        assert f"number {number}".encode() in b"".join(
            event.split(b'"content":"')[-1].split(b'"')[0] for event in answer.events
        )

    await asyncio.gather(*(one(number) for number in range(40)))
    for session in range(5):
        calls = [captured.call for captured in await rig.recorded(8, f"n{session}")]
        assert [call.ordinal for call in calls] == list(range(8))
        assert len({bytes(call.request_body) for call in calls}) == 8


async def test_a_sign_of_life_that_is_due_as_the_stream_ends_is_not_given(
    start: Starter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would stand behind the end, where the next answer on the connection begins."""
    leave = KeepAlive.__exit__

    def leave_when_due(self: KeepAlive, *failed: Any) -> None:
        self._relay.wrote_at -= 1000
        self._look()
        leave(self, *failed)

    monkeypatch.setattr(KeepAlive, "__exit__", leave_when_due)
    rig = await start(always(REPLY), keepalive=100.0)
    reader, writer = await asyncio.open_connection(*rig.base.removeprefix("http://").split(":"))
    peer = Peer(reader, writer)
    try:
        for _ in range(2):
            await peer.say(post(json.dumps(STREAM).encode(), "/s/s1" + CHAT))
            answer = await peer.answer()
            assert (answer.status, answer.body[-14:]) == (200, b"data: [DONE]\n\n")
    finally:
        writer.close()


async def test_a_stream_that_is_not_silent_gets_no_sign_of_life(
    start: Starter, monkeypatch: pytest.MonkeyPatch
) -> None:
    enter = KeepAlive.__enter__

    def enter_and_look(self: KeepAlive) -> None:
        enter(self)
        self._look()

    monkeypatch.setattr(KeepAlive, "__enter__", enter_and_look)
    rig = await start(always(REPLY), keepalive=100.0)
    answer = await rig.ask(STREAM)
    assert answer.events[-1] == b"data: [DONE]"
    assert b"keep-alive" not in answer.body
