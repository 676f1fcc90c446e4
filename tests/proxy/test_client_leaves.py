"""A client that leaves frees the engine, and what was sampled until then is kept."""

import asyncio
from typing import Any

import pytest

from polarproxy.model import CallStatus, TokenSource
from polarproxy.trajectory.branches import build_trajectory
from tests.fakes import Faults, always, compose
from tests.proxy.rig import BODY, IDS, Rig, Starter

REPLY = compose("one two three four")
STREAM = {**BODY, "stream": True}


async def leave(rig: Rig, body: dict[str, Any], events: int) -> None:
    """Reads so many events, then closes the connection."""
    async with rig.asking(body) as response:
        for _ in range(events):
            await response.content.readuntil(b"\n\n")
        response.close()


@pytest.mark.parametrize("asked", [{}, IDS], ids=["plain", "everything"])
async def test_in_the_middle_of_a_stream(start: Starter, asked: dict[str, Any]) -> None:
    rig = await start(always(REPLY, faults=Faults(hold_after=4)))
    await leave(rig, {**STREAM, **asked}, 4)
    await rig.engine.until(lambda engine: bool(engine.disconnects))
    assert [left.events for left in rig.engine.disconnects] == [4]
    captured = await rig.call()
    call = captured.call
    assert (call.status, call.token_source, captured.delivered) == (CallStatus.ABORTED, TokenSource.ENGINE, False)
    assert call.error == "the client left before the end of the reply"
    (completion,) = call.completions
    # The first of the four events named the role and the prompt.
    assert list(completion.token_ids) == REPLY.token_ids[:3]
    assert list(completion.logprobs or ()) == REPLY.logprobs[:3]
    assert completion.finish_reason is None
    assert call.prompt_token_ids is not None


async def test_after_every_number_of_events(start: Starter) -> None:
    for events in range(1, 6):
        rig = await start(always(REPLY, faults=Faults(hold_after=events)))
        async with rig.asking(STREAM, prefix=f"/s/after-{events}") as response:
            for _ in range(events):
                await response.content.readuntil(b"\n\n")
            response.close()
        sampled = [list(one.token_ids) for one in (await rig.call(f"after-{events}")).call.completions]
        assert sampled == [REPLY.token_ids[: events - 1]]


@pytest.mark.parametrize("body", [BODY, STREAM], ids=["whole", "stream"])
async def test_before_the_first_byte(start: Starter, body: dict[str, Any]) -> None:
    rig = await start(always(REPLY, faults=Faults(first_byte_delay=60)))
    asking = asyncio.create_task(rig.ask(body))
    await rig.engine.until(lambda _: bool(rig.received))
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    await rig.engine.until(lambda engine: bool(engine.disconnects))
    call = (await rig.call()).call
    assert (call.status, call.http_status, call.completions) == (CallStatus.ABORTED, None, ())
    assert call.timing.first_byte_us is None


async def test_in_the_middle_of_a_whole_reply(start: Starter) -> None:
    rig = await start(always(REPLY, faults=Faults(hold_after=1)))
    asking = asyncio.create_task(rig.ask())
    await rig.engine.until(lambda _: bool(rig.received))
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    await rig.engine.until(lambda engine: bool(engine.disconnects))
    assert (await rig.call()).call.status is CallStatus.ABORTED


async def test_before_the_last_event_of_a_reply_that_is_all_sampled(start: Starter) -> None:
    """The event that says why it ended was still held back, so the client has not seen the end."""
    rig = await start(always(REPLY, faults=Faults(hold_after=len(REPLY.steps) + 1)))
    await leave(rig, STREAM, len(REPLY.steps))
    await rig.engine.until(lambda engine: bool(engine.disconnects))
    captured = await rig.call()
    assert (captured.call.status, captured.delivered) == (CallStatus.ABORTED, False)
    assert list(captured.call.completions[0].token_ids) == REPLY.token_ids


async def test_it_is_never_trained_on_its_own(start: Starter) -> None:
    rig = await start(always(REPLY, faults=Faults(hold_after=4)))
    await leave(rig, STREAM, 4)
    trajectory = build_trajectory("s1", await rig.recorded())
    assert trajectory.trained_tokens == 0
    assert trajectory.left_out_by_reason() == {"aborted": 1}


async def test_the_same_request_again_is_a_call_of_its_own(start: Starter) -> None:
    """A harness that gave up on a stream asks once more without one."""
    rig = await start(always(REPLY, faults=Faults(hold_after=4)))
    await leave(rig, STREAM, 4)
    await rig.recorded(1)
    rig.engine.release()
    assert (await rig.ask()).status == 200
    first, second = (captured.call for captured in await rig.recorded(2))
    assert [(call.ordinal, call.status) for call in (first, second)] == [
        (0, CallStatus.ABORTED),
        (1, CallStatus.COMPLETED),
    ]


async def test_others_do_not_notice(start: Starter) -> None:
    rig = await start(always(REPLY, faults=Faults(hold_after=2)))
    staying = asyncio.create_task(rig.ask(STREAM, prefix="/s/stays"))
    await rig.engine.until(lambda _: len(rig.received) == 1)
    await leave(rig, STREAM, 2)
    await rig.recorded(1)
    rig.engine.release()
    assert (await staying).body.endswith(b"[DONE]\n\n")
    assert (await rig.call("stays")).call.status is CallStatus.COMPLETED
