"""The OpenAI SDK's helpers that parse: structured output, typed arguments of tools, and the loop that runs tools."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from openai import AsyncOpenAI, OpenAI, pydantic_function_tool
from openai.lib._tools import pydantic_responses_function_tool
from openai.lib.responses_tool_runner import (
    AsyncRegisteredFunction,
    AsyncResponsesToolRunner,
    RegisteredFunction,
    ResponsesToolRunner,
)
from openai.types.responses import ParsedResponse, Response
from pydantic import BaseModel

from polarproxy.model import Dialect
from tests.fakes import Tool, always, compose, in_order
from tests.fakes.transcript import stable
from tests.proxy.rig import Rig, Starter
from tests.sdks.record import recorded
from tests.sdks.ways_openai import awaited, in_thread


class City(BaseModel):
    """A city."""

    name: str
    inhabitants: int


LYON = City(name="Lyon", inhabitants=520_000)
STRUCTURED = compose(LYON.model_dump_json(), reasoning="A big one.")
CALLS = compose(tools=[Tool("City", LYON.model_dump_json()), Tool("City", '{"name": "Nice",  "inhabitants": 1}')])
FINAL = compose("Both are known.")
_CITY_FORMAT = {"type": "object", "required": ["name", "inhabitants"], "additionalProperties": False}

Parse = Callable[..., Awaitable[ParsedResponse[City]]]


async def parse(rig: Rig, **request: Any) -> ParsedResponse[City]:
    return await in_thread(rig, lambda client: client.responses.parse(**request))


async def parse_async(rig: Rig, **request: Any) -> ParsedResponse[City]:
    return await awaited(rig, lambda client: client.responses.parse(**request))


async def stream(rig: Rig, **request: Any) -> ParsedResponse[City]:
    def use(client: OpenAI) -> ParsedResponse[City]:
        with client.responses.stream(**request) as events:
            snapshots = [event.snapshot for event in events if event.type == "response.output_text.delta"]
            final: ParsedResponse[City] = events.get_final_response()
        assert snapshots[-1:] in ([final.output_text], [])
        return final

    return await in_thread(rig, use)


async def stream_async(rig: Rig, **request: Any) -> ParsedResponse[City]:
    async def use(client: AsyncOpenAI) -> ParsedResponse[City]:
        async with client.responses.stream(**request) as events:
            final: ParsedResponse[City] = await events.get_final_response()
            return final

    return await awaited(rig, use)


PARSED = pytest.mark.parametrize("ask", [parse, parse_async, stream, stream_async])


@PARSED
async def test_structured_output(start: Starter, ask: Parse) -> None:
    rig = await start(always(STRUCTURED))
    response = await ask(rig, model="fake", input="A city?", text_format=City)
    assert response.output_parsed == LYON
    (call,) = await recorded(rig, Dialect.RESPONSES, STRUCTURED)
    assert call.losses == ()
    asked = rig.received[0].json["response_format"]
    assert (asked["type"], asked["json_schema"]["name"], asked["json_schema"]["strict"]) == (
        "json_schema",
        "City",
        True,
    )
    assert asked["json_schema"]["schema"].items() >= _CITY_FORMAT.items()


@PARSED
async def test_arguments_of_tools(start: Starter, ask: Parse) -> None:
    rig = await start(always(CALLS))
    response = await ask(rig, model="fake", input="Cities?", tools=[pydantic_responses_function_tool(City)])
    parsed = [item.parsed_arguments for item in response.output if item.type == "function_call"]
    assert parsed == [LYON, City(name="Nice", inhabitants=1)]
    await recorded(rig, Dialect.RESPONSES, CALLS)
    (tool,) = rig.received[0].json["tools"]
    assert (tool["type"], tool["function"]["name"], tool["function"]["strict"]) == ("function", "City", True)


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "stream"])
async def test_the_loop_that_runs_tools(start: Starter, streamed: bool) -> None:
    rig, ran = await start(in_order(CALLS, FINAL)), list[City]()

    def note(city: City) -> str:
        ran.append(city)
        return f"{city.name} noted"

    def use(client: OpenAI) -> Response:
        function = RegisteredFunction.from_tool(pydantic_responses_function_tool(City), execute=note)
        runner = ResponsesToolRunner(functions=[function])
        return runner.run(client, {"model": "fake", "input": "Cities?"}, stream=streamed)

    assert (await in_thread(rig, use)).output_text == "Both are known."
    await check_loop(rig, ran)


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "stream"])
async def test_the_asynchronous_loop_that_runs_tools(start: Starter, streamed: bool) -> None:
    rig, ran = await start(in_order(CALLS, FINAL)), list[City]()

    async def note(city: City) -> str:
        ran.append(city)
        return f"{city.name} noted"

    async def use(client: AsyncOpenAI) -> Response:
        function = AsyncRegisteredFunction.from_tool(pydantic_responses_function_tool(City), execute=note)
        runner = AsyncResponsesToolRunner(functions=[function])
        return await runner.run(client, {"model": "fake", "input": "Cities?"}, stream=streamed)

    assert (await awaited(rig, use)).output_text == "Both are known."
    await check_loop(rig, ran)


async def check_loop(rig: Rig, ran: list[City]) -> None:
    assert sorted(city.name for city in ran) == ["Lyon", "Nice"]
    await recorded(rig, Dialect.RESPONSES, CALLS, FINAL)
    messages = rig.received[1].json["messages"]
    assert [message["role"] for message in messages] == ["user", "assistant", "tool", "tool"]
    assert [message["content"] for message in messages[2:]] == ["Lyon noted", "Nice noted"]


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "stream"])
async def test_structured_chat_is_parsed_as_from_the_engine_itself(start: Starter, streamed: bool) -> None:
    both = compose(LYON.model_dump_json(), tools=[Tool("City", LYON.model_dump_json())])
    rig, found = await start(always(both)), list[str]()
    request: Any = {
        "model": "fake",
        "messages": [{"role": "user", "content": "A city?"}],
        "response_format": City,
        "tools": [pydantic_function_tool(City)],
    }

    def use(client: OpenAI) -> Any:
        if not streamed:
            return client.chat.completions.parse(**request)
        with client.chat.completions.stream(**request) as events:
            return events.get_final_completion()

    for base in (f"{rig.engine.url}/v1", f"{rig.base}/s/s1/v1"):
        completion = await in_thread(rig, use, base_url=base)
        message = completion.choices[0].message
        assert message.parsed == LYON
        assert [call.function.parsed_arguments for call in message.tool_calls] == [LYON]
        found.append(stable(completion.model_dump_json(exclude_unset=True, warnings=False).encode()))
    assert found[1] == found[0]
    rig.engine.requests.remove(rig.received[0])
    await recorded(rig, Dialect.CHAT, both)
