"""litellm, which many agents are written with, makes the same objects of the proxy's replies as of the engine's own."""

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any

import litellm
import pytest
from litellm.exceptions import (
    APIError,
    AuthenticationError,
    BadGatewayError,
    ContextWindowExceededError,
    InternalServerError,
    RateLimitError,
    ServiceUnavailableError,
)

from polarproxy.model import CallStatus, Dialect
from tests.fakes import Faults, Reply, Tool, Turn, always, compose, in_order
from tests.fakes.transcript import stable
from tests.proxy.rig import SECONDS, Rig, Starter
from tests.sdks.played import PlayedStarter
from tests.sdks.record import recorded
from tests.sdks.ways_openai import listed

pytestmark = [
    # litellm imports all of its providers at the first call, and some of their types are for a newer Python.
    pytest.mark.filterwarnings("ignore:Items? .* on TypedDict class:UserWarning"),
    # It puts its own usage into objects of the OpenAI SDK before it logs them.
    pytest.mark.filterwarnings("ignore:Pydantic serializer warnings:UserWarning"),
    # It asks objects, and no longer their classes, for the names of their fields.
    pytest.mark.filterwarnings("ignore:Accessing the 'model_:DeprecationWarning"),
]

BOTH = compose("Let me see.", reasoning="Two.", tools=(Tool("weather", '{"city":  "Paris"}'), Tool("weather", "{}")))
FINAL = compose("Sun in both.", reasoning="Told.")
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}}
CHAT_TOOLS = [{"type": "function", "function": {"name": "weather", "parameters": PARAMETERS}}]
TOOLS = [{"type": "function", "name": "weather", "parameters": PARAMETERS}]
ASKED = {"role": "user", "content": "Weather?"}


@pytest.fixture(autouse=True)
async def no_clients_left() -> AsyncIterator[None]:
    """litellm keeps its clients for longer than a test's event loop lives."""
    yield
    kept: Any = litellm.in_memory_llm_clients_cache
    for client in kept.cache_dict.values():
        closing = client.close()
        if inspect.isawaitable(closing):
            await closing
    kept.flush_cache()


def options(url: str, model: str = "fake") -> dict[str, Any]:
    return {"model": f"openai/{model}", "api_base": url, "api_key": "unused", "timeout": SECONDS, "max_retries": 0}


def urls(rig: Rig) -> list[str]:
    return [f"{rig.engine.url}/v1", f"{rig.base}/s/s1/v1"]


def known(value: Any) -> str:
    return stable(value.model_dump_json(exclude_unset=True, warnings=False).encode())


async def in_thread(use: Callable[[], Any]) -> Any:
    async with asyncio.timeout(SECONDS):
        return await asyncio.to_thread(use)


def chat(url: str) -> list[str]:
    request = {"messages": [ASKED], "tools": CHAT_TOOLS, **options(url)}
    whole = litellm.completion(**request)
    chunks = list(litellm.completion(stream=True, stream_options={"include_usage": True}, **request))
    return [known(whole), known(litellm.stream_chunk_builder(chunks)), *map(known, chunks)]


async def chat_async(url: str) -> list[str]:
    request = {"messages": [ASKED], "tools": CHAT_TOOLS, **options(url)}
    whole = await litellm.acompletion(**request)
    stream: Any = await litellm.acompletion(stream=True, stream_options={"include_usage": True}, **request)
    chunks = await listed(stream)
    return [known(whole), known(litellm.stream_chunk_builder(chunks)), *map(known, chunks)]


BOTH_WAYS = pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])


@BOTH_WAYS
async def test_chat_is_what_the_engine_says_itself(start: Starter, asynchronous: bool) -> None:
    rig, found = await start(always(BOTH)), list[list[str]]()
    for url in urls(rig):
        found.append(await (chat_async(url) if asynchronous else in_thread(partial(chat, url))))
    assert found[1] == found[0]
    assert '"reasoning_content":"Two."' in found[1][0]
    del rig.engine.requests[:2]
    await recorded(rig, Dialect.CHAT, BOTH, BOTH)


@BOTH_WAYS
async def test_chat_with_tools_to_a_final_answer(start: Starter, asynchronous: bool) -> None:
    rig = await start(in_order(BOTH, FINAL))
    request: Any = {"tools": CHAT_TOOLS, **options(urls(rig)[1], "gpt-5")}
    messages: list[Any] = [ASKED]

    async def turn() -> Any:
        if asynchronous:
            return await litellm.acompletion(messages=messages, **request)
        return await in_thread(lambda: litellm.completion(messages=messages, **request))

    message = (await turn()).choices[0].message
    messages += [message, *({"role": "tool", "tool_call_id": call.id, "content": "sun"} for call in message.tool_calls)]
    assert (await turn()).choices[0].message.content == "Sun in both."
    await recorded(rig, Dialect.CHAT, BOTH, FINAL)
    assert [message["role"] for message in rig.received[1].json["messages"]] == ["user", "assistant", "tool", "tool"]


@BOTH_WAYS
async def test_responses_with_tools_to_a_final_answer(start: Starter, asynchronous: bool) -> None:
    rig = await start(in_order(BOTH, FINAL))
    request: Any = {"tools": TOOLS, **options(urls(rig)[1], "gpt-5")}

    async def turn(**more: Any) -> Any:
        if asynchronous:
            return await litellm.aresponses(**more, **request)
        return await in_thread(lambda: litellm.responses(**more, **request))

    first = await turn(input=[ASKED])
    calls = [item for item in first.output if item.type == "function_call"]
    assert [call.arguments for call in calls] == ['{"city":  "Paris"}', "{}"]
    results = [{"type": "function_call_output", "call_id": call.call_id, "output": "sun"} for call in calls]
    last = await turn(input=results, previous_response_id=first.id)
    assert last.output_text == "Sun in both."
    await recorded(rig, Dialect.RESPONSES, BOTH, FINAL)
    assert rig.received[1].json["messages"][1]["reasoning"] == "Two."


@BOTH_WAYS
async def test_a_stream_of_responses(start: Starter, asynchronous: bool) -> None:
    rig = await start(always(BOTH))
    request: Any = {"input": [ASKED], "tools": TOOLS, **options(urls(rig)[1], "gpt-5")}
    if asynchronous:
        stream: Any = await litellm.aresponses(stream=True, **request)
        events = await listed(stream)
    else:
        respond: Any = litellm.responses
        events = await in_thread(lambda: list(respond(stream=True, **request)))
    texts = [event.delta for event in events if event.type == "response.output_text.delta"]
    arguments = [event.arguments for event in events if event.type == "response.function_call_arguments.done"]
    assert ("".join(texts), arguments) == ("Let me see.", ['{"city":  "Paris"}', "{}"])
    assert len(texts) > 1
    assert events[-1].type == "response.completed"
    (call,) = await recorded(rig, Dialect.RESPONSES, BOTH)
    assert (call.streamed, call.requested_model) == (True, "gpt-5")
    assert events[-1].response.usage.input_tokens == len(call.prompt_token_ids or ())


TOO_LONG = Turn((Reply((), prompt_token_ids=(0,) * 40_000),))
ERRORS = {
    "overflow": (TOO_LONG, ContextWindowExceededError),
    "rate limit": (Turn((), Faults(status=429, retry_after=7)), RateLimitError),
    "engine error": (Turn((), Faults(status=500)), InternalServerError),
    "overload": (Turn((), Faults(status=503)), ServiceUnavailableError),
    "engine gone": (Turn((), Faults(refuse=True)), BadGatewayError),
}


@pytest.mark.parametrize("name", ERRORS)
async def test_what_is_raised(start_playing: PlayedStarter, name: str) -> None:
    turn, expected = ERRORS[name]
    rig = await start_playing(turn)
    request: Any = options(urls(rig)[1], "gpt-5")
    with pytest.raises(expected):
        await in_thread(lambda: litellm.completion(messages=[ASKED], **request))
    with pytest.raises(expected):
        await litellm.acompletion(messages=[ASKED], stream=True, **request)
    with pytest.raises(expected):
        await in_thread(lambda: litellm.responses(input="hi", **request))
    assert [captured.call.completions for captured in await rig.recorded(3)] == [()] * 3


async def test_a_wrong_key_and_a_closed_session(start_playing: PlayedStarter) -> None:
    rig = await start_playing(Turn((FINAL,)), auth="required")
    request: Any = options(urls(rig)[1], "gpt-5") | {"messages": [ASKED]}
    with pytest.raises(AuthenticationError):
        await litellm.acompletion(**request)
    request["api_key"] = rig.parts.signer.key("s1")
    assert (await litellm.acompletion(**request)).choices[0].message.content == "Sun in both."
    admin = {"Authorization": f"Bearer {rig.parts.signer.admin_key}"}
    await rig.control("POST", "/api/sessions/s1/close", {"status": "completed"}, admin)
    with pytest.raises(APIError) as closed:
        await litellm.acompletion(**request | {"max_retries": 5})
    assert closed.value.status_code == 409
    await recorded(rig, Dialect.CHAT, FINAL)


@pytest.mark.parametrize("retries", ["max_retries", "num_retries"])
async def test_it_asks_again(start_playing: PlayedStarter, retries: str) -> None:
    rig = await start_playing(Turn((), Faults(status=500)), Turn((FINAL,)))
    request: Any = options(urls(rig)[1], "gpt-5") | {retries: 1}
    reply = await litellm.acompletion(messages=[ASKED], **request)
    assert reply.choices[0].message.content == "Sun in both."
    calls = [captured.call for captured in await rig.recorded(2)]
    assert [call.status for call in calls] == [CallStatus.ENGINE_ERROR, CallStatus.COMPLETED]
    assert list(calls[1].completions[0].token_ids) == FINAL.token_ids
