"""What goes wrong reaches the users of Google's SDK as the error that it is; streams are true, and silence is silence."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import aiohttp
import httpx2
import pytest
from google.genai import Client, errors, types
from google.genai.client import AsyncClient

from polarproxy.model import CallStatus, Dialect
from tests.fakes import Faults, always, compose
from tests.proxy.rig import Rig, Starter
from tests.sdks.record import recorded
from tests.sdks.scenes import LONG
from tests.sdks.test_google_genai import ASK
from tests.sdks.troubles import CUTS, TROUBLES, check_cut, once
from tests.sdks.ways_genai import QUIET, WAYS, Way, awaited, in_thread

pytestmark = QUIET
ERRORS: dict[str, tuple[type[errors.APIError], int, str]] = {
    "overflow": (errors.ClientError, 400, "INVALID_ARGUMENT"),
    "unsigned": (errors.ClientError, 401, "UNAUTHENTICATED"),
    "forged": (errors.ClientError, 401, "UNAUTHENTICATED"),
    "unknown model": (errors.ClientError, 404, "NOT_FOUND"),
    "closed": (errors.ClientError, 409, "ABORTED"),
    "too large": (errors.ClientError, 413, "INVALID_ARGUMENT"),
    "too many": (errors.ClientError, 429, "RESOURCE_EXHAUSTED"),
    "failed": (errors.ServerError, 500, "INTERNAL"),
    "busy": (errors.ServerError, 503, "UNAVAILABLE"),
    "gone": (errors.ServerError, 502, "UNAVAILABLE"),
    "silent": (errors.ServerError, 504, "DEADLINE_EXCEEDED"),
}


# The SDK sends large bodies in one piece, which aiohttp advises against.
@pytest.mark.filterwarnings("ignore:Sending a large body directly:ResourceWarning")
@pytest.mark.parametrize("name", ["generate", "stream async"])
@pytest.mark.parametrize("trouble", TROUBLES)
async def test_an_error(start: Starter, trouble: str, name: str) -> None:
    kind, code, status = ERRORS[trouble]
    made = TROUBLES[trouble]
    rig = await made.begin(start)
    with pytest.raises(kind) as caught:
        await WAYS[name](rig, made.key_for(rig), model="any-model", contents=made.prompt)
    error = caught.value
    assert (error.code, error.status) == (code, status)
    assert made.words in (error.message or "")
    await made.check(rig)
    if made.faults.retry_after is not None:
        assert error.response.headers["retry-after"] == "7"


STREAMS: dict[str, Way] = {name: WAYS[name] for name in ("stream", "stream async", "stream httpx")}
BROKEN = (errors.APIError, httpx2.TransportError, aiohttp.ClientError)
"""An error object between the chunks, or a connection that was cut: the SDK hands on either."""


@pytest.mark.parametrize("way", STREAMS.values(), ids=STREAMS)
@pytest.mark.parametrize("faults", CUTS.values(), ids=CUTS)
async def test_a_stream_that_breaks_off_is_an_error_and_never_an_end(start: Starter, faults: Faults, way: Way) -> None:
    rig = await start(always(LONG, faults=faults))
    with pytest.raises(BROKEN):
        await way(rig, **ASK)
    await check_cut(rig)


@pytest.mark.parametrize("faults", CUTS.values(), ids=CUTS)
async def test_what_came_before_the_break_has_been_seen(start: Starter, faults: Faults) -> None:
    rig = await start(always(LONG, faults=faults))
    seen: list[Any] = []

    def use(sync: Client) -> None:
        for chunk in sync.models.generate_content_stream(**ASK):
            seen.append(chunk)  # noqa: PERF402  (those before the error count)

    with pytest.raises(BROKEN):
        await in_thread(rig, use)
    assert "".join(chunk.text or "" for chunk in seen) == "one t"
    assert all(chunk.candidates[0].finish_reason is None for chunk in seen)


@pytest.mark.parametrize("faults", CUTS.values(), ids=CUTS)
async def test_whole_content_that_breaks_off(start: Starter, faults: Faults) -> None:
    rig = await start(always(LONG, faults=faults))
    with pytest.raises(errors.ServerError) as caught:
        await WAYS["generate"](rig, **ASK)
    assert caught.value.code == (500 if faults.error_after else 502)
    await check_cut(rig)


RETRIED = {name: Faults(status=status) for name, status in (("too many", 429), ("failed", 500), ("busy", 503))}
AGAIN = types.HttpRetryOptions(attempts=3, initial_delay=0.01, jitter=0.01)


@pytest.mark.parametrize("faults", RETRIED.values(), ids=RETRIED)
async def test_the_sdk_asks_again(start: Starter, faults: Faults) -> None:
    rig = await start(once(faults, faults))
    response = await in_thread(rig, lambda sync: sync.models.generate_content(**ASK), retry_options=AGAIN)
    assert response.text == "one two three four five six"
    calls = await recorded(rig, Dialect.GEMINI, None, None, LONG)
    assert len({call.request_body for call in calls}) == 1

    async def use(aio: AsyncClient) -> str:
        return "".join([chunk.text or "" async for chunk in await aio.models.generate_content_stream(**ASK)])

    rig = await start(once(faults))
    assert await awaited(rig, use, retry_options=AGAIN) == "one two three four five six"


async def test_a_request_that_cannot_be_understood(start: Starter) -> None:
    rig = await start()
    config = types.GenerateContentConfig(cached_content="cachedContents/x")
    with pytest.raises(errors.ClientError, match="cachedContent") as caught:
        await WAYS["generate"](rig, **ASK, config=config)
    assert (caught.value.code, caught.value.status) == (400, "INVALID_ARGUMENT")
    assert (rig.calls(), rig.received) == ([], [])


def released(rig: Rig) -> Callable[[], Any]:
    """Lets the engine go on, from any thread."""
    return partial(asyncio.get_running_loop().call_soon_threadsafe, rig.engine.release)


THOUGHT = compose("Four.", reasoning="Two and two.")
PLACES = [(LONG, 2, "on"), (LONG, 5, "one two"), (THOUGHT, 4, "Two"), (THOUGHT, 11, "Two and two.Fo")]
"""A reply, after how many of its events the engine waits, and what can be known by then."""


@pytest.mark.parametrize(("reply", "place", "known"), PLACES)
async def test_each_chunk_is_there_before_the_engine_sends_the_next(
    start: Starter, reply: Any, place: int, known: str
) -> None:
    rig = await start(always(reply, faults=Faults(hold_after=place)), keepalive=0.02)
    go_on = released(rig)
    config = types.GenerateContentConfig(thinking_config=types.ThinkingConfig(include_thoughts=True))

    def text(chunk: Any) -> str:
        return "".join(part.text for part in chunk.candidates[0].content.parts)

    async def use_async(aio: AsyncClient) -> str:
        said = ""
        async for chunk in await aio.models.generate_content_stream(**ASK, config=config):
            said += text(chunk)
            # If this never comes to be true, the SDK waits for ever.
            if said == known:
                go_on()
        return said

    def use(sync: Client) -> str:
        said = ""
        for chunk in sync.models.generate_content_stream(**ASK, config=config):
            said += text(chunk)
            if said == known:
                go_on()
        return said

    said = await (awaited(rig, use_async) if place % 2 else in_thread(rig, use))
    assert said == "".join((step.delta.reasoning or "") + (step.delta.content or "") for step in reply.steps)
    await recorded(rig, Dialect.GEMINI, reply)


async def test_silence_stays_silence(start: Starter) -> None:
    """This dialect's clients know nothing that could be said, and some die of it."""
    rig = await start(always(LONG, faults=Faults(event_delay=0.02)), keepalive=0.005)
    body = b'{"contents": [{"parts": [{"text": "hi"}]}]}'
    for query, length in (("?alt=sse", 5), ("", 3)):
        answer = await rig.send("POST", f"{rig.base}/v1beta/models/m:streamGenerateContent{query}", body)
        assert answer.status == 200
        lines = {line[:length] for line in answer.body.split(b"\r\n") if line.strip()}
        assert lines == ({b"data:"} if query else {b'[{"', b'{"c'})


async def test_the_end_is_not_told_before_the_call_is_stored(start: Starter) -> None:
    rig = await start(always(LONG))

    def use(sync: Client) -> list[CallStatus]:
        for chunk in sync.models.generate_content_stream(**ASK):
            if chunk.candidates and chunk.candidates[0].finish_reason:
                return [captured.call.status for captured in rig.calls()]
        return []

    assert await in_thread(rig, use) == [CallStatus.COMPLETED]
