"""Conversations of Google's SDK: functions that it calls by itself to a final answer, and reasoning that comes back."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from google.genai import Client, types
from google.genai.client import AsyncClient

from polarproxy.model import Dialect
from polarproxy.trajectory.branches import build_trajectory
from tests.fakes import Reply, in_order
from tests.proxy.rig import Rig, Starter, until
from tests.sdks.record import recorded
from tests.sdks.scenes import BOTH, FINAL, THOUGHTFUL
from tests.sdks.test_google_genai import ASK, THINK, TOOLS
from tests.sdks.ways_genai import EVERY_WAY, QUIET, WAYS, Response, Way, awaited, in_thread

pytestmark = QUIET
QUESTION = "Weather in Paris and Lyon?"


async def check_one_branch(rig: Rig, *replies: Reply) -> list[dict[str, Any]]:
    """The engine was told every turn as it had sampled it, so all are one branch without a gap; its last messages."""
    await recorded(rig, Dialect.GEMINI, *replies)
    await until(lambda: all(captured.delivered for captured in rig.calls()))
    trajectory = build_trajectory("s1", rig.calls())
    assert len(trajectory.branches) == 1
    assert trajectory.trained_tokens == sum(len(reply.tokens) for reply in replies)
    messages: list[dict[str, Any]] = rig.received[-1].json["messages"]
    return messages


async def check_both_turns(rig: Rig, answer: str) -> None:
    user, assistant, *tools = await check_one_branch(rig, BOTH, FINAL)
    assert user == {"role": "user", "content": QUESTION}
    assert (assistant["content"], assistant["reasoning"]) == ("Let me see.", "Two cities.")
    assert [call["function"]["arguments"] for call in assistant["tool_calls"]] == [
        '{"city": "Paris"}',
        '{"city": "Lyon", "days": 1.5}',
    ]
    assert [tool["role"] for tool in tools] == ["tool", "tool"]
    assert [tool["content"] for tool in tools] == [answer, answer]
    assert [tool["tool_call_id"] for tool in tools] == [call["id"] for call in assistant["tool_calls"]]


def results(response: Response) -> types.Content:
    """The answers of the functions that a response calls."""
    answers = [
        types.Part(function_response=types.FunctionResponse(id=call.id, name=call.name, response={"output": "sun"}))
        for call in response.function_calls or ()
    ]
    return types.Content(role="user", parts=answers)


@pytest.mark.parametrize("thinking", [THINK, None], ids=["thoughts", "no thoughts"])
@EVERY_WAY
async def test_tools_to_a_final_answer(start: Starter, way: Way, thinking: types.ThinkingConfig | None) -> None:
    rig = await start(in_order(BOTH, FINAL))
    config = types.GenerateContentConfig(tools=TOOLS, thinking_config=thinking)  # type: ignore[arg-type]
    asked = types.Content(role="user", parts=[types.Part(text=QUESTION)])
    first = await way(rig, model="any-model", contents=[asked], config=config)
    assert first.candidates is not None
    history = [asked, first.candidates[0].content, results(first)]
    last = await way(rig, model="any-model", contents=history, config=config)
    assert last.text == "Sun in both."
    await check_both_turns(rig, "sun")


def weather(city: str, days: float = 1) -> dict[str, Any]:
    """The weather in a city."""
    assert (city, days) in (("Paris", 1), ("Lyon", 1.5))
    return {"sky": "sun"}


SELF_CALLING: dict[str, Any] = {"model": "any-model", "config": types.GenerateContentConfig(tools=[weather])}


async def chat(rig: Rig) -> list[str | None]:
    def use(sync: Client) -> list[str | None]:
        talk = sync.chats.create(**SELF_CALLING)
        return [talk.send_message(QUESTION).text, talk.send_message("Sure?").text]

    return await in_thread(rig, use)


async def chat_stream(rig: Rig) -> list[str | None]:
    def use(sync: Client) -> list[str | None]:
        talk = sync.chats.create(**SELF_CALLING)
        return ["".join(chunk.text or "" for chunk in talk.send_message_stream(said)) for said in (QUESTION, "Sure?")]

    return await in_thread(rig, use)


async def chat_async(rig: Rig) -> list[str | None]:
    async def use(aio: AsyncClient) -> list[str | None]:
        talk = aio.chats.create(**SELF_CALLING)
        return [(await talk.send_message(said)).text for said in (QUESTION, "Sure?")]

    return await awaited(rig, use)


async def chat_stream_async(rig: Rig) -> list[str | None]:
    async def use(aio: AsyncClient) -> list[str | None]:
        talk, answers = aio.chats.create(**SELF_CALLING), list[str | None]()
        for said in (QUESTION, "Sure?"):
            answers.append("".join([chunk.text or "" async for chunk in await talk.send_message_stream(said)]))
        return answers

    return await awaited(rig, use)


CHATS = (chat, chat_stream, chat_async, chat_stream_async)


@pytest.mark.parametrize("talk", CHATS)
async def test_a_chat_that_calls_functions_by_itself(
    start: Starter, talk: Callable[[Rig], Awaitable[list[str | None]]]
) -> None:
    rig = await start(in_order(BOTH, FINAL, THOUGHTFUL))
    answers = await talk(rig)
    streamed = "stream" in talk.__name__
    assert answers == ["Let me see.Sun in both." if streamed else "Sun in both.", "Four."]
    calls = await recorded(rig, Dialect.GEMINI, BOTH, FINAL, THOUGHTFUL)
    # The SDK declares what its functions return, which engines have no place for.
    assert all(loss.where.endswith(".response_json_schema") for call in calls for loss in call.losses)
    messages = await check_one_branch(rig, BOTH, FINAL, THOUGHTFUL)
    assert [message["role"] for message in messages] == ["user", "assistant", "tool", "tool", "assistant", "user"]
    assert [message.get("reasoning") for message in messages[1::3]] == ["Two cities.", "Both are told."]
    assert messages[2]["content"] == '{"result": {"sky": "sun"}}'


@pytest.mark.parametrize("name", ["generate", "stream async"])
@pytest.mark.parametrize("thinking", [THINK, None], ids=["thoughts", "no thoughts"])
async def test_thinking_comes_back_also_when_it_was_not_shown(
    start: Starter, name: str, thinking: types.ThinkingConfig | None
) -> None:
    rig, way = await start(in_order(THOUGHTFUL, FINAL)), WAYS[name]
    config = types.GenerateContentConfig(thinking_config=thinking)
    first = await way(rig, **ASK, config=config)
    assert first.candidates is not None
    said = first.candidates[0].content
    assert said is not None
    assert [bool(part.thought) for part in said.parts or () if part.text] == ([True, False] if thinking else [False])
    asked = [types.Content(role="user", parts=[types.Part(text=text)]) for text in ("hi", "Sure?")]
    await way(rig, model="any-model", contents=[asked[0], said, asked[1]], config=config)
    _, assistant, _ = await check_one_branch(rig, THOUGHTFUL, FINAL)
    assert (assistant["reasoning"], assistant["content"]) == ("Two and two.", "Four.")
