"""What the OpenAI SDK raises when something goes wrong, and what it does about it, in each of OpenAI's dialects."""

from dataclasses import dataclass, field
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI, OpenAI

from polarproxy.model import CallStatus, Dialect
from tests.fakes import Faults, Reply, Turn, compose
from tests.fakes.script import PromptToken
from tests.proxy.rig import Rig
from tests.sdks.played import PlayedStarter
from tests.sdks.ways_openai import awaited, in_thread, listed

HELLO = Turn((compose("Hello you."),))
TOO_LONG = 40_000
DIALECTS = (Dialect.CHAT, Dialect.COMPLETIONS, Dialect.RESPONSES)
EVERY_DIALECT = pytest.mark.parametrize("dialect", DIALECTS)


def ask(client: Any, dialect: Dialect, text: str = "hi", **more: Any) -> Any:
    """A request of either client; the asynchronous one's is to be awaited."""
    request = {"model": "fake", **more}
    match dialect:
        case Dialect.CHAT:
            return client.chat.completions.create(messages=[{"role": "user", "content": text}], **request)
        case Dialect.COMPLETIONS:
            return client.completions.create(prompt=text, **request)
    return client.responses.create(input=text, **request)


@dataclass(frozen=True)
class Case:
    """Something that goes wrong before the first byte of a reply."""

    error: type[openai.APIStatusError]
    status: int
    words: str
    turn: Turn = HELLO
    settings: dict[str, Any] = field(default_factory=dict)
    request: dict[str, Any] = field(default_factory=dict)
    closed: bool = False
    """Whether the session is closed."""
    recorded: CallStatus | None = None
    """None: it is no call."""
    code: str | None = None
    """The error's code in Responses."""

    @property
    def by_engine(self) -> bool:
        """Whether a client of the engine itself gets the same answer."""
        return self.recorded is not None and self.status != 502


def fault(status: int) -> Turn:
    return Turn((), Faults(status=status, retry_after=7 if status == 429 else None))


CASES = {
    "overflow": Case(
        openai.BadRequestError,
        400,
        "maximum context length is 32768 tokens",
        Turn((Reply((), prompt_token_ids=(0,) * TOO_LONG, prompt=(PromptToken(0, "x"),) * TOO_LONG),)),
        recorded=CallStatus.REJECTED,
        code="context_length_exceeded",
    ),
    "no key": Case(
        openai.AuthenticationError, 401, "session keys", settings={"auth": "required"}, code="invalid_api_key"
    ),
    "no such model": Case(
        openai.NotFoundError,
        404,
        "The model `nope` does not exist",
        settings={"model_map": "off"},
        request={"model": "nope"},
        recorded=CallStatus.REJECTED,
        code="not_found",
    ),
    "closed session": Case(openai.ConflictError, 409, "closed", closed=True, code="conflict"),
    "too large": Case(
        openai.APIStatusError, 413, "too large", settings={"max_body_mb": 1}, request={"text": "x" * (1 << 21)}
    ),
    "rate limit": Case(
        openai.RateLimitError, 429, "fault 429", fault(429), recorded=CallStatus.REJECTED, code="rate_limit_exceeded"
    ),
    "engine error": Case(
        openai.InternalServerError, 500, "fault 500", fault(500), recorded=CallStatus.ENGINE_ERROR, code="server_error"
    ),
    "overload": Case(
        openai.InternalServerError, 503, "fault 503", fault(503), recorded=CallStatus.ENGINE_ERROR, code="server_error"
    ),
    "engine gone": Case(
        openai.InternalServerError,
        502,
        "the engine",
        Turn((), Faults(refuse=True)),
        recorded=CallStatus.ENGINE_ERROR,
        code="server_error",
    ),
}


async def raised(rig: Rig, dialect: Dialect, case: Case, **options: Any) -> list[openai.APIStatusError]:
    """What both clients raise, one for a whole reply, one for a stream."""
    with pytest.raises(case.error) as whole:
        await in_thread(rig, lambda client: ask(client, dialect, **case.request), **options)
    with pytest.raises(case.error) as streamed:
        await awaited(rig, lambda client: ask(client, dialect, stream=True, **case.request), **options)
    return [whole.value, streamed.value]


@pytest.mark.parametrize("name", CASES)
async def test_what_is_raised(start_playing: PlayedStarter, name: str) -> None:
    case = CASES[name]
    rig = await start_playing(case.turn, **case.settings)
    if case.closed:
        await in_thread(rig, lambda client: ask(client, Dialect.CHAT))
        assert (await rig.control("POST", "/api/sessions/s1/close", {"status": "completed"})).status == 200
    errors = {dialect: await raised(rig, dialect, case) for dialect in DIALECTS}
    for dialect, each in errors.items():
        for error in each:
            check_error(error, dialect, case)
    if case.recorded is None:
        assert len(rig.calls()) == case.closed
        return
    calls = [captured.call for captured in await rig.recorded(2 * len(DIALECTS))]
    assert [call.dialect for call in calls] == [dialect for dialect in DIALECTS for _ in range(2)]
    for call in calls:
        assert (call.status, call.completions) == (case.recorded, ())
        assert case.words in (call.error or "")
    for dialect in (Dialect.CHAT, Dialect.COMPLETIONS) if case.by_engine else ():
        direct = await raised(rig, dialect, case, base_url=f"{rig.engine.url}/v1")
        assert [(str(one), one.body) for one in errors[dialect]] == [(str(one), one.body) for one in direct]


def check_error(error: openai.APIStatusError, dialect: Dialect, case: Case) -> None:
    assert (type(error), error.status_code) == (case.error, case.status)
    assert case.words in error.message
    retry_after = {429: "7", 503: "2" if dialect is Dialect.RESPONSES else None}.get(case.status)
    assert error.response.headers.get("retry-after") == retry_after
    assert dialect is not Dialect.RESPONSES or error.code == case.code


@pytest.mark.parametrize(
    ("dialect", "status"),
    [(Dialect.CHAT, 429), (Dialect.COMPLETIONS, 503), (Dialect.RESPONSES, 429), (Dialect.RESPONSES, 500)],
)
async def test_the_sdk_asks_again(start_playing: PlayedStarter, dialect: Dialect, status: int) -> None:
    turn = Turn((), Faults(status=status, retry_after=1 if status == 429 else None))
    rig = await start_playing(turn, HELLO)
    if status == 500:
        reply = await in_thread(rig, lambda client: ask(client, dialect), max_retries=1)
        assert reply.usage is not None
    else:
        stream = await awaited(rig, lambda client: streamed(client, dialect), max_retries=1)
        assert len(stream) > 1
    failed, completed = [captured.call for captured in await rig.recorded(2)]
    refused = CallStatus.REJECTED if status == 429 else CallStatus.ENGINE_ERROR
    assert (failed.status, failed.http_status) == (refused, status)
    assert completed.status is CallStatus.COMPLETED
    assert dict(completed.headers)["x-stainless-retry-count"] == "1"
    assert len(completed.completions[0].token_ids) > 0


async def streamed(client: AsyncOpenAI, dialect: Dialect) -> list[Any]:
    return await listed(await ask(client, dialect, stream=True))


@EVERY_DIALECT
async def test_the_sdk_does_not_ask_a_closed_session_again(start_playing: PlayedStarter, dialect: Dialect) -> None:
    rig = await start_playing(HELLO)
    await in_thread(rig, lambda client: ask(client, dialect))
    await rig.control("POST", "/api/sessions/s1/close", {"status": "completed"})
    with pytest.raises(openai.ConflictError) as caught:
        await in_thread(rig, lambda client: ask(client, dialect), max_retries=5)
    assert caught.value.request.headers["x-stainless-retry-count"] == "0"


@EVERY_DIALECT
@pytest.mark.parametrize("faults", [Faults(error_after=4), Faults(cut_after=4)], ids=["error", "cut"])
async def test_a_stream_that_breaks_off_is_no_reply(
    start_playing: PlayedStarter, faults: Faults, dialect: Dialect
) -> None:
    reply = compose("one two three four five six")
    rig, types = await start_playing(Turn((reply,), faults)), list[str]()

    def use(client: OpenAI) -> None:
        for event in ask(client, dialect, stream=True):
            types.append(getattr(event, "type", ""))

    with pytest.raises(openai.APIError) as caught:
        await in_thread(rig, use)
    if dialect is Dialect.RESPONSES:
        assert types[-1] == "response.failed"
        assert "response.output_text.delta" in types
    else:
        # The engine's own error, or the reset that its clients see.
        assert len(types) > 1
        assert isinstance(caught.value, openai.APIConnectionError) == (faults.error_after is None)
    call = (await rig.call()).call
    assert call.status is CallStatus.ENGINE_ERROR
    kept = list(call.completions[0].token_ids)
    assert kept == reply.token_ids[: len(kept)] != []
