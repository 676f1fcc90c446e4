"""Conversations of the Anthropic SDK: tools to a final answer, and reasoning that comes back as the model said it."""

from typing import Any

import anthropic
import pytest
from anthropic import Anthropic, AsyncAnthropic, beta_async_tool, beta_tool

from polarproxy.model import Dialect
from polarproxy.trajectory.branches import build_trajectory
from tests.fakes import Reply, in_order
from tests.proxy.rig import Rig, Starter, until
from tests.sdks.record import recorded
from tests.sdks.scenes import FINAL, THOUGHTFUL, both
from tests.sdks.test_anthropic import ASK, TOOLS
from tests.sdks.ways_anthropic import EVERY_WAY, WAYS, Way, awaited, in_thread

BOTH = both(",", ":")
QUESTION = {"role": "user", "content": "Weather in Paris and Lyon?"}
SETTINGS: dict[str, Any] = {"model": "any-model", "max_tokens": 1000, "tools": TOOLS}


async def check_one_branch(rig: Rig, *replies: Reply) -> list[dict[str, Any]]:
    """The engine was told every turn as it had sampled it, so all are one branch without a gap; its last messages."""
    await recorded(rig, Dialect.MESSAGES, *replies)
    await until(lambda: all(captured.delivered for captured in rig.calls()))
    trajectory = build_trajectory("s1", rig.calls())
    assert len(trajectory.branches) == 1
    assert trajectory.trained_tokens == sum(len(reply.tokens) for reply in replies)
    messages: list[dict[str, Any]] = rig.received[-1].json["messages"]
    return messages


def results(message: Any, **more: Any) -> dict[str, Any]:
    """The answer of the tools that a message calls."""
    uses = [block for block in message.content if block.type == "tool_use"]
    content = [{"type": "tool_result", "tool_use_id": use.id, "content": "sun", **more} for use in uses]
    return {"role": "user", "content": content}


@EVERY_WAY
async def test_tools_to_a_final_answer(start: Starter, way: Way) -> None:
    rig = await start(in_order(BOTH, FINAL))
    first = await way(rig, messages=[QUESTION], **SETTINGS)
    # As the documentation has it: the blocks of the reply go back as they were parsed.
    history = [QUESTION, {"role": "assistant", "content": first.content}, results(first)]
    last = await way(rig, messages=history, **SETTINGS)
    assert last.content[-1].text == "Sun in both."
    user, assistant, *tools = await check_one_branch(rig, BOTH, FINAL)
    assert user == QUESTION
    assert (assistant["content"], assistant["reasoning"]) == ("Let me see.", "Two cities.")
    assert [call["function"]["arguments"] for call in assistant["tool_calls"]] == [
        '{"city":"Paris"}',
        '{"city":"Lyon","days":1.5}',
    ]
    assert [(tool["role"], tool["content"]) for tool in tools] == [("tool", "sun")] * 2
    assert [tool["tool_call_id"] for tool in tools] == [call["id"] for call in assistant["tool_calls"]]


@pytest.mark.parametrize("display", ["summarized", "omitted"])
@pytest.mark.parametrize("name", ["create", "events async", "stream", "beta stream"])
async def test_thinking_comes_back_also_when_it_was_not_shown(start: Starter, name: str, display: str) -> None:
    rig, way = await start(in_order(THOUGHTFUL, FINAL)), WAYS[name]
    thinking = {"thinking": {"type": "enabled", "budget_tokens": 1024, "display": display}}
    first = await way(rig, **ASK, **thinking)
    assert first.content[0].thinking == ("Two and two." if display == "summarized" else "")
    again = {"role": "assistant", "content": first.content}
    await way(rig, **{**ASK, "messages": [*ASK["messages"], again, {"role": "user", "content": "Sure?"}]}, **thinking)
    _, assistant, _ = await check_one_branch(rig, THOUGHTFUL, FINAL)
    assert (assistant["reasoning"], assistant["content"]) == ("Two and two.", "Four.")


async def test_a_tool_that_fails(start: Starter) -> None:
    rig, way = await start(in_order(BOTH, FINAL)), WAYS["create"]
    first = await way(rig, messages=[QUESTION], **SETTINGS)
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
    failed = results(first, is_error=True, content=[{"type": "text", "text": "no network"}, image])
    history = [QUESTION, {"role": "assistant", "content": first.content}, failed]
    await way(rig, messages=history, **SETTINGS)
    *_, tool, _ = rig.received[-1].json["messages"]
    assert "no network" in str(tool["content"])


@beta_tool
def weather(city: str, days: float = 1) -> str:
    """The weather in a city.

    Args:
        city: Where.
        days: How far ahead.
    """
    assert (city, days) in (("Paris", 1), ("Lyon", 1.5))
    return "sun"


@beta_async_tool
async def weather_async(city: str, days: float = 1) -> str:
    """The weather in a city."""
    return "sun"


weather_async.name = "weather"


async def run_tools(rig: Rig, *, stream: bool) -> Any:
    def use(client: Anthropic) -> Any:
        runner: Any = client.beta.messages.tool_runner(
            tools=[weather],
            stream=stream,
            model="any-model",
            max_tokens=1000,
            messages=[QUESTION],  # type: ignore[list-item]
        )
        for turn in runner:
            last = turn.get_final_message() if stream else turn
        return last

    return await in_thread(rig, use)


async def run_tools_async(rig: Rig, *, stream: bool) -> Any:
    async def use(client: AsyncAnthropic) -> Any:
        runner: Any = client.beta.messages.tool_runner(
            tools=[weather_async],
            stream=stream,
            model="any-model",
            max_tokens=1000,
            messages=[QUESTION],  # type: ignore[list-item]
        )
        async for turn in runner:
            last = await turn.get_final_message() if stream else turn
        return last

    return await awaited(rig, use)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("run", [run_tools, run_tools_async], ids=["sync", "async"])
async def test_the_tool_runner(start: Starter, run: Any, stream: bool) -> None:
    """It asks for a thread that the server keeps, is told that there are none, and sends the whole history instead."""
    rig = await start(in_order(BOTH, FINAL))
    last = await run(rig, stream=stream)
    assert last.content[-1].text == "Sun in both."
    _, assistant, *tools = await check_one_branch(rig, BOTH, FINAL)
    assert assistant["reasoning"] == "Two cities."
    assert [tool["content"] for tool in tools] == ["sun", "sun"]
    assert rig.parts.stats.unreadable == 1


async def test_threads_are_refused_by_their_name(start: Starter) -> None:
    rig = await start()

    def use(client: Anthropic) -> None:
        client.beta.messages.thread(model="any-model", max_tokens=10).send({"role": "user", "content": "hi"})

    with pytest.raises(anthropic.BadRequestError, match="send the whole history") as caught:
        await in_thread(rig, use)
    assert caught.value.error_code == "thread_unsupported_request"
    assert type(caught.value).__name__ == "ThreadUnsupportedRequestError"
    assert rig.calls() == []
