"""What goes wrong reaches the users of boto3 as the error that it is; streams are true, and silence is silence."""

import asyncio
from collections.abc import Callable
from contextlib import closing
from functools import partial
from typing import Any

import pytest
from botocore.exceptions import ClientError, EventStreamError  # type: ignore[import-untyped]

from polarproxy.model import CallStatus, Dialect
from tests.fakes import Faults, Reply, always
from tests.proxy.rig import Rig, Starter
from tests.sdks.record import recorded
from tests.sdks.scenes import BOTH, LONG, THOUGHTFUL
from tests.sdks.test_bedrock import ASK, TOOLS
from tests.sdks.troubles import CUTS, TROUBLES, check_cut, once
from tests.sdks.ways_bedrock import EVERY_WAY, WAYS, Way, in_thread

ERRORS = {
    "overflow": (400, "ValidationException"),
    "unsigned": (403, "AccessDeniedException"),
    "forged": (403, "AccessDeniedException"),
    "unknown model": (404, "ResourceNotFoundException"),
    "closed": (409, "ConflictException"),
    "too large": (413, "ValidationException"),
    "too many": (429, "ThrottlingException"),
    "failed": (500, "InternalServerException"),
    "busy": (503, "ServiceUnavailableException"),
    "gone": (503, "ServiceUnavailableException"),
    "silent": (408, "ModelTimeoutException"),
}


@EVERY_WAY
@pytest.mark.parametrize("trouble", TROUBLES)
async def test_an_error(start: Starter, trouble: str, way: Way) -> None:
    status, code = ERRORS[trouble]
    made = TROUBLES[trouble]
    rig = await made.begin(start)
    messages = [{"role": "user", "content": [{"text": made.prompt}]}]
    with pytest.raises(ClientError) as caught:
        await way(rig, made.key_for(rig), modelId="any-model", messages=messages)
    told = caught.value.response
    assert (told["Error"]["Code"], told["ResponseMetadata"]["HTTPStatusCode"]) == (code, status)
    assert type(caught.value).__name__ == code
    assert made.words in told["Error"]["Message"]
    await made.check(rig)
    if made.faults.retry_after is not None:
        assert told["ResponseMetadata"]["HTTPHeaders"]["retry-after"] == "7"


@pytest.mark.parametrize("faults", CUTS.values(), ids=CUTS)
async def test_a_stream_that_breaks_off_is_an_error_and_never_an_end(start: Starter, faults: Faults) -> None:
    rig = await start(always(LONG, faults=faults))
    seen: list[dict[str, Any]] = []

    def use(bedrock: Any) -> None:
        with closing(bedrock.converse_stream(**ASK)["stream"]) as stream:
            for event in stream:
                seen.append(event)  # noqa: PERF402  (those before the error count)

    with pytest.raises(EventStreamError, match=r"[eE]ngine") as caught:
        await in_thread(rig, use)
    expected = "internalServerException" if faults.error_after else "modelStreamErrorException"
    assert caught.value.response["Error"]["Code"] == expected
    assert "".join(event["contentBlockDelta"]["delta"]["text"] for event in seen[1:]) == "one t"
    await check_cut(rig)


@pytest.mark.parametrize("faults", CUTS.values(), ids=CUTS)
async def test_a_whole_message_that_breaks_off(start: Starter, faults: Faults) -> None:
    rig = await start(always(LONG, faults=faults))
    with pytest.raises(ClientError) as caught:
        await WAYS["converse"](rig, **ASK)
    expected = "InternalServerException" if faults.error_after else "ServiceUnavailableException"
    assert caught.value.response["Error"]["Code"] == expected
    await check_cut(rig)


RETRIED = {name: Faults(status=status) for name, status in (("too many", 429), ("failed", 500), ("busy", 503))}


@pytest.mark.parametrize("mode", ["standard", "legacy"])
@pytest.mark.parametrize("faults", RETRIED.values(), ids=RETRIED)
async def test_the_sdk_asks_again(start: Starter, faults: Faults, mode: str) -> None:
    rig = await start(once(faults))
    answer = await in_thread(rig, lambda bedrock: bedrock.converse(**ASK), attempts=2, mode=mode)
    assert answer["ResponseMetadata"]["RetryAttempts"] == 1
    assert answer["output"]["message"]["content"] == [{"text": "one two three four five six"}]
    first, second = await recorded(rig, Dialect.BEDROCK, None, LONG)
    assert first.request_body == second.request_body


async def test_an_overflow_is_not_asked_again(start: Starter) -> None:
    rig = await TROUBLES["overflow"].begin(start)
    messages = [{"role": "user", "content": [{"text": TROUBLES["overflow"].prompt}]}]
    with pytest.raises(ClientError, match="maximum context length"):
        await in_thread(rig, lambda bedrock: bedrock.converse(modelId="m", messages=messages), attempts=3)
    await recorded(rig, Dialect.BEDROCK, None)


def released(rig: Rig) -> Callable[[], Any]:
    """Lets the engine go on, from any thread."""
    return partial(asyncio.get_running_loop().call_soon_threadsafe, rig.engine.release)


def text(event: dict[str, Any]) -> str:
    """What an event adds."""
    delta = event.get("contentBlockDelta", {}).get("delta", {})
    inputs, reasoning = delta.get("toolUse", {}).get("input", ""), delta.get("reasoningContent", {}).get("text", "")
    said: str = delta.get("text", "") + inputs + reasoning
    return said


def shown(reply: Reply, events: int) -> str:
    """What the client can know after so many events of the engine, of which the first has no token."""
    deltas = [step.delta for step in reply.steps[: events - 1]]
    arguments = [tool.arguments or "" for delta in deltas for tool in delta.tools]
    return "".join([*((delta.reasoning or "") + (delta.content or "") for delta in deltas), *arguments])


@pytest.mark.parametrize("place", [2, 5])
@pytest.mark.parametrize("reply", [LONG, THOUGHTFUL, BOTH], ids=["text", "thinking", "calls"])
async def test_each_event_is_there_before_the_engine_sends_the_next(start: Starter, reply: Reply, place: int) -> None:
    # Of the calls, in the middle of the first one's arguments.
    place += 36 if reply is BOTH else 0
    rig = await start(always(reply, faults=Faults(hold_after=place)), keepalive=0.02)
    go_on, known = released(rig), shown(reply, place)

    def use(bedrock: Any) -> list[dict[str, Any]]:
        events, said = [], ""
        with closing(bedrock.converse_stream(**ASK, toolConfig=TOOLS)["stream"]) as stream:
            for event in stream:
                events.append(event)
                said += text(event)
                # If this never comes to be true, the SDK waits for ever.
                if said == known:
                    go_on()
        return events

    events = await in_thread(rig, use)
    assert "".join(map(text, events)) == shown(reply, len(reply.steps) + 1)
    assert {kind for event in events for kind in event} <= {
        "messageStart",
        "contentBlockStart",
        "contentBlockDelta",
        "contentBlockStop",
        "messageStop",
        "metadata",
    }
    await recorded(rig, Dialect.BEDROCK, reply)


async def test_the_end_is_not_told_before_the_call_is_stored(start: Starter) -> None:
    rig = await start(always(LONG))

    def use(bedrock: Any) -> list[CallStatus]:
        stored: list[CallStatus] = []
        with closing(bedrock.converse_stream(**ASK)["stream"]) as stream:
            for event in stream:
                if not event.keys().isdisjoint({"contentBlockStop", "messageStop", "metadata"}):
                    stored.extend(captured.call.status for captured in rig.calls())
        return stored

    assert await in_thread(rig, use) == [CallStatus.COMPLETED] * 3
