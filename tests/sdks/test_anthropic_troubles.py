"""What goes wrong reaches the users of the Anthropic SDK as the error that it is; what can be mended its retries mend."""

from typing import Any

import anthropic
import pytest
from anthropic import Anthropic, AsyncAnthropic

from polarproxy.model import CallStatus, Dialect
from tests.fakes import Faults, always
from tests.proxy.rig import Starter
from tests.sdks.record import recorded
from tests.sdks.scenes import LONG
from tests.sdks.test_anthropic import ASK
from tests.sdks.troubles import CUTS, TROUBLES, check_cut, once
from tests.sdks.ways_anthropic import WAYS, Way, awaited, in_thread

SOME_WAYS = pytest.mark.parametrize("name", ["create", "stream async"])
ERRORS: dict[str, tuple[type[anthropic.APIStatusError], int, str]] = {
    "overflow": (anthropic.BadRequestError, 400, "invalid_request_error"),
    "unsigned": (anthropic.AuthenticationError, 401, "authentication_error"),
    "forged": (anthropic.AuthenticationError, 401, "authentication_error"),
    "unknown model": (anthropic.NotFoundError, 404, "not_found_error"),
    "closed": (anthropic.ConflictError, 409, "invalid_request_error"),
    "too large": (anthropic.ContentTooLargeError, 413, "request_too_large"),
    "too many": (anthropic.RateLimitError, 429, "rate_limit_error"),
    "failed": (anthropic.InternalServerError, 500, "api_error"),
    "busy": (anthropic.OverloadedError, 529, "overloaded_error"),
    "gone": (anthropic.InternalServerError, 502, "api_error"),
    "silent": (anthropic.GatewayTimeoutError, 504, "timeout_error"),
}


@SOME_WAYS
@pytest.mark.parametrize("trouble", TROUBLES)
async def test_an_error(start: Starter, trouble: str, name: str) -> None:
    kind, status, told = ERRORS[trouble]
    made = TROUBLES[trouble]
    rig = await made.begin(start)
    body = {**ASK, "messages": [{"role": "user", "content": made.prompt}]}
    with pytest.raises(kind) as caught:
        await WAYS[name](rig, key=made.key_for(rig), **body)
    error = caught.value
    assert (type(error), error.status_code, error.type) == (kind, status, told)
    assert made.words in (error.api_message or "")
    await made.check(rig)
    if made.faults.retry_after is not None:
        assert error.response.headers["retry-after"] == "7"


STREAMS: dict[str, Way] = {name: WAYS[name] for name in ("events", "events async", "stream", "stream async")}


@pytest.mark.parametrize("way", STREAMS.values(), ids=STREAMS)
@pytest.mark.parametrize("faults", CUTS.values(), ids=CUTS)
async def test_a_stream_that_breaks_off_is_an_error_and_never_an_end(start: Starter, faults: Faults, way: Way) -> None:
    rig = await start(always(LONG, faults=faults))
    with pytest.raises(anthropic.APIStatusError, match=r"[eE]ngine") as caught:
        await way(rig, **ASK)
    assert caught.value.type == "api_error"
    await check_cut(rig)


@pytest.mark.parametrize("faults", CUTS.values(), ids=CUTS)
async def test_what_came_before_the_break_has_been_seen(start: Starter, faults: Faults) -> None:
    rig = await start(always(LONG, faults=faults))
    seen: list[Any] = []

    def use(client: Anthropic) -> None:
        with client.messages.create(stream=True, **ASK) as stream:
            seen.extend(stream)

    with pytest.raises(anthropic.APIStatusError):
        await in_thread(rig, use)
    deltas = [event.delta.text for event in seen if event.type == "content_block_delta"]
    assert "".join(deltas) == "one t"
    assert seen[-1].type == "content_block_delta"


@pytest.mark.parametrize("faults", CUTS.values(), ids=CUTS)
async def test_a_whole_message_that_breaks_off(start: Starter, faults: Faults) -> None:
    rig = await start(always(LONG, faults=faults))
    with pytest.raises(anthropic.InternalServerError, match=r"[eE]ngine") as caught:
        await WAYS["create"](rig, **ASK)
    assert caught.value.status_code == (500 if faults.error_after else 502)
    await check_cut(rig)


RETRIED = {
    "too many": Faults(status=429, retry_after=1),
    "failed": Faults(status=500),
    "busy": Faults(status=503, retry_after=1),
}


@pytest.mark.parametrize("faults", RETRIED.values(), ids=RETRIED)
async def test_the_sdk_asks_again(start: Starter, faults: Faults) -> None:
    rig = await start(once(faults))

    def use(client: Anthropic) -> Any:
        return client.messages.create(**ASK)

    message = await in_thread(rig, use, max_retries=1)
    assert message.content[0].text == "one two three four five six"
    first, second = await recorded(rig, Dialect.MESSAGES, None, LONG)
    assert [dict(call.headers)["x-stainless-retry-count"] for call in (first, second)] == ["0", "1"]
    assert first.request_body == second.request_body
    assert first.status in (CallStatus.REJECTED, CallStatus.ENGINE_ERROR)


async def test_the_sdk_asks_again_asynchronously_and_twice(start: Starter) -> None:
    rig = await start(once(Faults(status=500), Faults(status=503, retry_after=1)))

    async def use(client: AsyncAnthropic) -> str:
        async with client.messages.stream(**ASK) as stream:
            return await stream.get_final_text()

    assert await awaited(rig, use, max_retries=2) == "one two three four five six"
    await recorded(rig, Dialect.MESSAGES, None, None, LONG)


async def test_an_overflow_is_not_asked_again(start: Starter) -> None:
    rig = await TROUBLES["overflow"].begin(start)
    body = {**ASK, "messages": [{"role": "user", "content": TROUBLES["overflow"].prompt}]}
    with pytest.raises(anthropic.BadRequestError, match="maximum context length"):
        await in_thread(rig, lambda client: client.messages.create(**body), max_retries=2)
    await recorded(rig, Dialect.MESSAGES, None)


async def test_a_request_that_cannot_be_understood(start: Starter) -> None:
    rig = await start()
    with pytest.raises(anthropic.BadRequestError, match=r"messages\[0\]\.role"):
        await WAYS["create"](rig, **{**ASK, "messages": [{"role": "nobody", "content": "hi"}]})
    assert (rig.calls(), rig.received) == ([], [])
