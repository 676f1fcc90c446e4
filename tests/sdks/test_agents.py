"""openai-agents: an agent with a tool, a hand-off and structured output, over responses, their WebSocket, and chat."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import openai
import pytest
from agents import (
    Agent,
    ModelRetrySettings,
    ModelSettings,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    OpenAIResponsesWSModel,
    Runner,
    RunResult,
    RunResultStreaming,
    function_tool,
    retry_policies,
)
from agents.exceptions import ModelBehaviorError
from agents.models.interface import Model
from agents.models.openai_responses import ResponsesWebSocketError
from openai import AsyncOpenAI
from pydantic import BaseModel

from polarproxy.model import CallStatus, Dialect
from polarproxy.trajectory.branches import build_trajectory
from tests.fakes import Faults, Reply, Tool, Turn, always, compose, in_order
from tests.proxy.rig import Rig, Starter, until
from tests.sdks.played import PlayedStarter
from tests.sdks.record import recorded
from tests.sdks.ways_openai import access

BOTH = compose(
    "Let me see.",
    reasoning="Two cities.",
    # Spelled as the engine spells them when a reply is not streamed.
    tools=(Tool("weather", '{"city": "Paris"}'), Tool("weather", '{"city": "Lyon"}')),
)
FINAL = compose("Sun in both.", reasoning="Both are told.")
ASKED = "Weather in Paris and Lyon?"

Run = RunResult | RunResultStreaming


@function_tool
def weather(city: str) -> str:
    """The weather in a city."""
    return f"Sun in {city}."


@asynccontextmanager
async def model(rig: Rig, transport: str, **options: Any) -> AsyncIterator[Model]:
    async with AsyncOpenAI(**access(rig, **options)) as client:
        match transport:
            case "chat":
                yield OpenAIChatCompletionsModel("gpt-5", client)
            case "responses":
                yield OpenAIResponsesModel("gpt-5", client)
            case _:
                socket = OpenAIResponsesWSModel("gpt-5", client)
                yield socket
                await socket.close()


async def run(agent: Agent[None], asked: str = ASKED, *, streamed: bool, **more: Any) -> Run:
    if not streamed:
        return await Runner.run(agent, asked, **more)
    result = Runner.run_streamed(agent, asked, **more)
    async for _ in result.stream_events():
        pass
    return result


TRANSPORTS: dict[str, Dialect] = {"responses": Dialect.RESPONSES, "socket": Dialect.RESPONSES, "chat": Dialect.CHAT}
EVERY_TRANSPORT = pytest.mark.parametrize("transport", TRANSPORTS)
BOTH_FORMS = pytest.mark.parametrize("streamed", [False, True], ids=["whole", "stream"])


@BOTH_FORMS
@EVERY_TRANSPORT
async def test_tools_to_a_final_answer(start: Starter, transport: str, streamed: bool) -> None:
    rig = await start(in_order(BOTH, FINAL))
    async with model(rig, transport) as spoken:
        settings = ModelSettings(include_usage=True)
        agent = Agent(name="A", instructions="Be brief.", tools=[weather], model=spoken, model_settings=settings)
        result = await run(agent, streamed=streamed)
    assert result.final_output == "Sun in both."
    await check_one_branch(rig, result, TRANSPORTS[transport])


@BOTH_FORMS
@pytest.mark.parametrize("transport", ["responses", "socket"])
async def test_turns_that_continue_a_response(start: Starter, transport: str, streamed: bool) -> None:
    rig = await start(in_order(BOTH, FINAL))
    async with model(rig, transport) as spoken:
        agent = Agent(name="A", instructions="Be brief.", tools=[weather], model=spoken)
        result = await run(agent, streamed=streamed, auto_previous_response_id=True)
    assert result.final_output == "Sun in both."
    await check_one_branch(rig, result, Dialect.RESPONSES)
    (_, last) = [captured.call for captured in rig.calls()]
    assert b'"previous_response_id":"resp_' in last.request_body.replace(b" ", b"")
    assert ASKED.encode() not in last.request_body


async def check_one_branch(rig: Rig, result: Run, dialect: Dialect) -> None:
    calls = await recorded(rig, dialect, BOTH, FINAL)
    usage = result.context_wrapper.usage
    assert usage.requests == 2
    assert usage.input_tokens == sum(len(call.prompt_token_ids or ()) for call in calls)
    assert usage.output_tokens == len(BOTH.tokens) + len(FINAL.tokens)
    roles = [message["role"] for message in rig.received[1].json["messages"]]
    assert roles == ["system", "user", "assistant", "tool", "tool"]
    await until(lambda: all(captured.delivered for captured in rig.calls()))
    trajectory = build_trajectory("s1", rig.calls())
    assert (len(trajectory.branches), trajectory.trained_tokens) == (1, len(BOTH.tokens) + len(FINAL.tokens))


class City(BaseModel):
    """A city."""

    name: str


@EVERY_TRANSPORT
async def test_structured_output(start: Starter, transport: str) -> None:
    said = compose('{"name": "Lyon"}')
    rig = await start(always(said))
    async with model(rig, transport) as spoken:
        result = await run(Agent(name="A", output_type=City, model=spoken), streamed=True)
    assert result.final_output == City(name="Lyon")
    await recorded(rig, TRANSPORTS[transport], said)
    assert rig.received[0].json["response_format"]["type"] == "json_schema"


@EVERY_TRANSPORT
async def test_one_agent_hands_over_to_another(start: Starter, transport: str) -> None:
    handing = compose("I pass you on.", tools=(Tool("transfer_to_forecaster", "{}"),))
    rig = await start(in_order(handing, FINAL))
    async with model(rig, transport) as spoken:
        forecaster = Agent(name="forecaster", instructions="Forecast.", model=spoken)
        agent = Agent(name="A", instructions="Pass on.", handoffs=[forecaster], model=spoken)
        result = await run(agent, streamed=False)
    assert (result.final_output, result.last_agent.name) == ("Sun in both.", "forecaster")
    await recorded(rig, TRANSPORTS[transport], handing, FINAL)
    systems = [received.json["messages"][0]["content"] for received in rig.received]
    assert systems == ["Pass on.", "Forecast."]


ERRORS = {
    "overflow": (Turn((Reply((), prompt_token_ids=(0,) * 40_000),)), openai.BadRequestError, "context_length_exceeded"),
    "rate limit": (Turn((), Faults(status=429, retry_after=7)), openai.RateLimitError, "rate_limit_exceeded"),
    "engine error": (Turn((), Faults(status=500)), openai.InternalServerError, "server_error"),
}


@EVERY_TRANSPORT
@pytest.mark.parametrize("name", ERRORS)
async def test_what_is_raised(start_playing: PlayedStarter, name: str, transport: str) -> None:
    turn, expected, code = ERRORS[name]
    rig = await start_playing(turn)
    async with model(rig, transport) as spoken:
        with pytest.raises(ResponsesWebSocketError if transport == "socket" else expected) as caught:
            await run(Agent(name="A", model=spoken), streamed=True)
    error: Any = caught.value
    assert error.code == code or transport == "chat"
    assert (await rig.call()).call.completions == ()


@pytest.mark.parametrize("transport", ["responses", "chat"])
async def test_it_asks_again(start_playing: PlayedStarter, transport: str) -> None:
    rig = await start_playing(Turn((), Faults(status=500)), Turn((FINAL,)))
    retry = ModelRetrySettings(max_retries=1, policy=retry_policies.http_status([500]), backoff={"initial_delay": 0.01})
    async with model(rig, transport) as spoken:
        agent = Agent(name="A", model=spoken, model_settings=ModelSettings(retry=retry))
        result = await run(agent, streamed=False)
    assert result.final_output == "Sun in both."
    failed, completed = [captured.call for captured in await rig.recorded(2)]
    assert (failed.status, completed.status) == (CallStatus.ENGINE_ERROR, CallStatus.COMPLETED)
    assert list(completed.completions[0].token_ids) == FINAL.token_ids


@EVERY_TRANSPORT
async def test_a_stream_that_breaks_off_is_no_answer(start_playing: PlayedStarter, transport: str) -> None:
    rig = await start_playing(Turn((FINAL,), Faults(cut_after=8)))
    async with model(rig, transport) as spoken:
        with pytest.raises(openai.APIConnectionError if transport == "chat" else ModelBehaviorError):
            await run(Agent(name="A", model=spoken), streamed=True)
    call = (await rig.call()).call
    assert (call.dialect, call.status) == (TRANSPORTS[transport], CallStatus.ENGINE_ERROR)
    kept = list(call.completions[0].token_ids)
    assert kept == FINAL.token_ids[: len(kept)] != []
