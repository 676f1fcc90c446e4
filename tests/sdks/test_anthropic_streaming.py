"""Streams are true ones: what the engine has sampled, the Anthropic SDK has given; silence is told by pings."""

import asyncio
import json
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from anthropic import Anthropic, AsyncAnthropic

from polarproxy.model import CallStatus, Dialect
from tests.fakes import Faults, Reply, Tool, always, compose
from tests.proxy.rig import Rig, Starter
from tests.sdks.record import recorded
from tests.sdks.scenes import LONG
from tests.sdks.test_anthropic import ASK, TOOLS
from tests.sdks.ways_anthropic import awaited, in_thread

CALL = compose(tools=(Tool("weather", '{"city":"Paris"}'),))
THOUGHT = compose("Four.", reasoning="Two and two.")
REPLIES = {"text": LONG, "thinking": THOUGHT, "call": CALL}
PLACES = [("text", 1), ("text", 2), ("text", 5), ("thinking", 4), ("thinking", 11), ("call", 24), ("call", 26)]
"""After how many of its events the engine waits."""


def shown(reply: Reply, events: int) -> str:
    """What the client can know after so many events of the engine, of which the first has no token."""
    deltas = [step.delta for step in reply.steps[: events - 1]]
    arguments = [tool.arguments or "" for delta in deltas for tool in delta.tools]
    return "".join([*(delta.reasoning or delta.content or "" for delta in deltas), *arguments])


def released(rig: Rig) -> Callable[[], Any]:
    """Lets the engine go on, from any thread."""
    return partial(asyncio.get_running_loop().call_soon_threadsafe, rig.engine.release)


class Reader:
    """Reads events up to where the engine waits, lets it go on, and reads the rest."""

    def __init__(self, expected: str, go_on: Callable[[], Any]) -> None:
        self.text, self.kinds = "", list[str]()
        self._expected, self._go_on, self._held = expected, go_on, True

    def take(self, event: Any) -> None:
        self.kinds.append(event.type)
        if event.type == "content_block_delta":
            delta = event.delta.to_dict()
            self.text += delta.get("text") or delta.get("thinking") or delta.get("partial_json") or ""
        # The engine waits: if this never comes to be true, the SDK waits for ever.
        if self._held and self.text == self._expected:
            self._held = False
            self._go_on()

    def check(self, reply: Reply) -> None:
        assert not self._held
        assert self.text == shown(reply, len(reply.steps) + 1)
        assert (self.kinds[0], self.kinds[-1]) == ("message_start", "message_stop")


@pytest.mark.parametrize(("name", "place"), PLACES)
async def test_each_event_is_there_before_the_engine_sends_the_next(start: Starter, name: str, place: int) -> None:
    reply = REPLIES[name]
    rig = await start(always(reply, faults=Faults(hold_after=place)))
    reader = Reader(shown(reply, place), released(rig))

    async def use(client: AsyncAnthropic) -> None:
        api: Any = client.messages
        async with await api.create(stream=True, tools=TOOLS, **ASK) as stream:
            async for event in stream:
                reader.take(event)

    await awaited(rig, use)
    reader.check(reply)
    await recorded(rig, Dialect.MESSAGES, reply)


async def test_the_helper_gives_text_while_the_engine_samples(start: Starter) -> None:
    rig = await start(always(LONG, faults=Faults(hold_after=4)))
    go_on = released(rig)

    def use(client: Anthropic) -> str:
        said = ""
        with client.messages.stream(**ASK) as stream:
            for text in stream.text_stream:
                said += text
                if said == "one t":
                    go_on()
        return said

    assert await in_thread(rig, use) == "one two three four five six"


async def test_the_end_is_not_told_before_the_call_is_stored(start: Starter) -> None:
    rig = await start(always(LONG))
    stored: list[CallStatus] = []

    def use(client: Anthropic) -> None:
        with client.messages.create(stream=True, **ASK) as stream:
            for event in stream:
                if event.type in ("content_block_stop", "message_delta", "message_stop"):
                    stored.extend(captured.call.status for captured in rig.calls())

    await in_thread(rig, use)
    assert stored == [CallStatus.COMPLETED] * 3


async def test_silence_is_filled_with_pings(start: Starter) -> None:
    rig = await start(always(LONG, faults=Faults(hold_after=4)), keepalive=0.02)
    go_on = released(rig)

    def use(client: Anthropic) -> list[str]:
        lines = []
        with client.messages.with_streaming_response.create(stream=True, **ASK) as response:
            for line in response.iter_lines():
                lines.append(line)
                if lines.count("event: ping") == 2:
                    go_on()
        return lines

    lines = await in_thread(rig, use)
    place = lines.index("event: ping")
    assert lines[place : place + 3] == ["event: ping", 'data: {"type":"ping"}', ""]
    events = [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: ")]
    named = [line.removeprefix("event: ") for line in lines if line.startswith("event: ")]
    assert [event["type"] for event in events] == named
    assert named[-1] == "message_stop"


async def test_the_sdk_passes_over_pings(start: Starter) -> None:
    rig = await start(always(LONG, faults=Faults(event_delay=0.03)), keepalive=0.005)

    async def use(client: AsyncAnthropic) -> str:
        async with client.messages.stream(**ASK) as stream:
            return await stream.get_final_text()

    assert await awaited(rig, use) == "one two three four five six"


async def test_a_client_that_leaves_ends_the_sampling(start: Starter) -> None:
    rig = await start(always(LONG, faults=Faults(hold_after=4)))

    def use(client: Anthropic) -> None:
        with client.messages.create(stream=True, **ASK) as stream:
            for event in stream:
                if event.type == "content_block_delta":
                    return

    await in_thread(rig, use)
    await rig.engine.until(lambda engine: bool(engine.disconnects))
    captured = await rig.call()
    assert (captured.call.status, captured.delivered) == (CallStatus.ABORTED, False)
