"""langchain-openai over chat and over responses: the same messages whole and streamed, tools to a final answer, errors."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import reduce
from operator import add
from typing import Any

import openai
import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI, OpenAI
from pydantic import BaseModel, SecretStr

from polarproxy.model import CallStatus, Dialect
from polarproxy.trajectory.branches import build_trajectory
from tests.fakes import Faults, Reply, Tool, Turn, always, compose, in_order
from tests.fakes.sampling import limited
from tests.fakes.toy_tokenizer import encode
from tests.fakes.transcript import stable
from tests.proxy.rig import SECONDS, Rig, Starter, until
from tests.sdks.played import PlayedStarter
from tests.sdks.record import check_tokens, recorded

CALLS = (Tool("weather", '{"city": "Paris"}'), Tool("weather", '{"city": "Lyon"}'))
BOTH = {
    # Over chat langchain does not keep what a model thought.
    Dialect.CHAT: compose("Let me see.", tools=CALLS),
    Dialect.RESPONSES: compose("Let me see.", reasoning="Two cities.", tools=CALLS),
}
FINAL = compose("Sun in both.", reasoning="Both are told.")
LONG = compose("one two three four five six")
ASKED = [HumanMessage("Weather in Paris and Lyon?")]

Ask = Callable[[Any, Any], Awaitable[AIMessage]]


@tool
def weather(city: str) -> str:
    """The weather in a city."""
    return f"Sun in {city}."


async def invoke(model: Any, messages: Any) -> Any:
    async with asyncio.timeout(SECONDS):
        return await asyncio.to_thread(model.invoke, messages)


async def ainvoke(model: Any, messages: Any) -> Any:
    return await model.ainvoke(messages)


async def stream(model: Any, messages: Any) -> Any:
    async with asyncio.timeout(SECONDS):
        return await asyncio.to_thread(lambda: reduce(add, model.stream(messages)))


async def astream(model: Any, messages: Any) -> Any:
    return reduce(add, [chunk async for chunk in model.astream(messages)])


EVERY_WAY = pytest.mark.parametrize("ask", [invoke, ainvoke, stream, astream])
BOTH_APIS = pytest.mark.parametrize("dialect", [Dialect.CHAT, Dialect.RESPONSES])


Http = dict[str, Any]
"""HTTP clients, which langchain would keep for longer than a test's event loop lives."""


@pytest.fixture
async def http() -> AsyncIterator[Http]:
    async with openai.DefaultAsyncHttpxClient() as asynchronous:
        with openai.DefaultHttpxClient() as synchronous:
            yield {"http_client": synchronous, "http_async_client": asynchronous}


def chat(rig: Rig, http: Http, dialect: Dialect, **more: Any) -> ChatOpenAI:
    known: dict[str, Any] = {"model": "gpt-5", "base_url": f"{rig.base}/s/s1/v1", "api_key": "unused", "max_retries": 0}
    return ChatOpenAI(use_responses_api=dialect is Dialect.RESPONSES, stream_usage=True, **(known | http | more))


@BOTH_APIS
@EVERY_WAY
async def test_tools_to_a_final_answer(start: Starter, http: Http, ask: Ask, dialect: Dialect) -> None:
    rig = await start(in_order(BOTH[dialect], FINAL))
    model = chat(rig, http, dialect).bind_tools([weather])
    called = await ask(model, ASKED)
    assert called.text == "Let me see."
    assert [(call["name"], call["args"]) for call in called.tool_calls] == [
        ("weather", {"city": "Paris"}),
        ("weather", {"city": "Lyon"}),
    ]
    results = [await weather.ainvoke(call) for call in called.tool_calls]
    last = await ask(model, [*ASKED, called, *results])
    assert (last.text, last.tool_calls) == ("Sun in both.", [])
    for message, call in zip((called, last), await recorded(rig, dialect, BOTH[dialect], FINAL), strict=True):
        assert message.usage_metadata is not None
        assert message.usage_metadata["input_tokens"] == len(call.prompt_token_ids or ())
        assert message.usage_metadata["output_tokens"] == len(call.completions[0].token_ids)
    roles = [message["role"] for message in rig.received[1].json["messages"]]
    assert roles == ["user", "assistant", "tool", "tool"]
    await until(lambda: all(captured.delivered for captured in rig.calls()))
    assert len(build_trajectory("s1", rig.calls()).branches) == 1


@BOTH_APIS
@pytest.mark.parametrize("ask", [invoke, astream])
async def test_a_reply_that_is_cut(start: Starter, http: Http, ask: Ask, dialect: Dialect) -> None:
    rig = await start(always(LONG))
    message = await ask(chat(rig, http, dialect, max_tokens=4), ASKED)
    assert message.text == "one two"
    ended = message.response_metadata
    reason = ended["finish_reason"] if dialect is Dialect.CHAT else ended["incomplete_details"]["reason"]
    assert reason == ("length" if dialect is Dialect.CHAT else "max_output_tokens")
    await recorded(rig, dialect, limited(LONG, 4))


class City(BaseModel):
    """A city."""

    name: str


@BOTH_APIS
async def test_structured_output(start: Starter, http: Http, dialect: Dialect) -> None:
    said = compose('{"name": "Lyon"}')
    rig = await start(always(said))
    model = chat(rig, http, dialect).with_structured_output(City)
    assert [await ainvoke(model, "A city?"), await invoke(model, "A city?")] == [City(name="Lyon")] * 2
    await recorded(rig, dialect, said, said)
    assert rig.received[0].json["response_format"]["json_schema"]["name"] == "City"


@EVERY_WAY
async def test_chat_is_what_the_engine_says_itself(start: Starter, http: Http, ask: Ask) -> None:
    rig = await start(always(BOTH[Dialect.RESPONSES]))
    found = []
    for base in (rig.engine.url, f"{rig.base}/s/s1"):
        model = chat(rig, http, Dialect.CHAT, base_url=f"{base}/v1", model="fake", n=2).bind_tools([weather])
        found.append(stable((await ask(model, ASKED)).model_dump_json(exclude={"id"}).encode()))
    assert found[1] == found[0]
    rig.engine.requests.remove(rig.received[0])
    await recorded(rig, Dialect.CHAT, BOTH[Dialect.RESPONSES], n=2)


async def test_text_completions(start_playing: PlayedStarter, http: Http) -> None:
    rig = await start_playing(Turn((LONG,)))
    known: dict[str, Any] = {"model": "fake", "max_tokens": 100, "temperature": 1}
    model = OpenAI(base_url=f"{rig.base}/s/s1/v1", api_key=SecretStr("unused"), **known, **http)
    async with asyncio.timeout(SECONDS):
        assert await asyncio.to_thread(model.invoke, "Count:") == "one two three four five six"
    assert "".join([piece async for piece in model.astream("Count:")]) == "one two three four five six"
    for captured in await rig.recorded(2):
        assert captured.call.dialect is Dialect.COMPLETIONS
        check_tokens(captured.call, encode("Count:"), [LONG])


ERRORS = {
    "overflow": (Turn((Reply((), prompt_token_ids=(0,) * 40_000),)), openai.BadRequestError, "maximum context length"),
    "rate limit": (Turn((), Faults(status=429, retry_after=7)), openai.RateLimitError, "fault 429"),
    "engine error": (Turn((), Faults(status=500)), openai.InternalServerError, "fault 500"),
}


@BOTH_APIS
@pytest.mark.parametrize("name", ERRORS)
async def test_what_is_raised(start_playing: PlayedStarter, http: Http, name: str, dialect: Dialect) -> None:
    turn, expected, words = ERRORS[name]
    rig = await start_playing(turn)
    for ask in (invoke, astream):
        with pytest.raises(expected, match=words):
            await ask(chat(rig, http, dialect), ASKED)
    assert [captured.call.completions for captured in await rig.recorded(2)] == [(), ()]


@BOTH_APIS
async def test_it_asks_again(start_playing: PlayedStarter, http: Http, dialect: Dialect) -> None:
    rig = await start_playing(Turn((), Faults(status=500)), Turn((FINAL,)))
    assert (await astream(chat(rig, http, dialect, max_retries=1), ASKED)).text == "Sun in both."
    calls = [captured.call for captured in await rig.recorded(2)]
    assert [call.status for call in calls] == [CallStatus.ENGINE_ERROR, CallStatus.COMPLETED]
    assert list(calls[1].completions[0].token_ids) == FINAL.token_ids
