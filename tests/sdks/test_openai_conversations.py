"""Conversations of the OpenAI SDK over the Responses API: tools to a final answer, however the earlier turns are named."""

from collections.abc import Callable
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI, OpenAI
from openai.types.responses import Response

from polarproxy.model import Dialect
from polarproxy.trajectory.branches import build_trajectory
from tests.fakes import Tool, always, compose, in_order
from tests.proxy.rig import Rig, Starter, until
from tests.sdks.record import recorded
from tests.sdks.strict import valid
from tests.sdks.test_openai_responses import WEATHER
from tests.sdks.ways_openai import LATELY_UNKNOWN, WAYS, awaited, in_thread

ASKED = {"role": "user", "content": "Weather in Paris and Lyon?"}
BOTH = compose(
    "Let me see.",
    reasoning="Two cities.",
    tools=(Tool("weather", '{"city":  "Paris"}'), Tool("weather", '{"city": "Lyon"}')),
)
FINAL = compose("Sun in both.", reasoning="Both are told.")
SETTINGS: dict[str, Any] = {"model": "fake", "tools": [WEATHER]}


def results(response: Response) -> list[dict[str, Any]]:
    """The outputs of the tools that a response calls."""
    calls = [item for item in response.output if item.type == "function_call"]
    return [{"type": "function_call_output", "call_id": call.call_id, "output": "sun"} for call in calls]


def sent_again(first: Response) -> dict[str, Any]:
    return {"input": [ASKED, *(item.to_dict() for item in first.output), *results(first)]}


def by_previous_id(first: Response) -> dict[str, Any]:
    return {"input": results(first), "previous_response_id": first.id}


def by_reference(first: Response) -> dict[str, Any]:
    named = [{"type": "item_reference", "id": item.id} for item in first.output]
    return {"input": [ASKED, *named, *results(first)]}


async def check_both_turns(rig: Rig, last: Response) -> None:
    """The engine was told the first turn as it had sampled it, so both turns are one branch without a gap."""
    assert last.output_text == "Sun in both."
    await recorded(rig, Dialect.RESPONSES, BOTH, FINAL)
    user, assistant, *tools = rig.received[1].json["messages"]
    assert user == ASKED
    assert (assistant["content"], assistant["reasoning"]) == ("Let me see.", "Two cities.")
    functions = [call["function"] for call in assistant["tool_calls"]]
    assert [function["arguments"] for function in functions] == ['{"city":  "Paris"}', '{"city": "Lyon"}']
    assert [(tool["role"], tool["content"]) for tool in tools] == [("tool", "sun")] * 2
    assert [tool["tool_call_id"] for tool in tools] == [call["id"] for call in assistant["tool_calls"]]
    await until(lambda: all(captured.delivered for captured in rig.calls()))
    trajectory = build_trajectory("s1", rig.calls())
    assert len(trajectory.branches) == 1
    assert trajectory.trained_tokens == len(BOTH.tokens) + len(FINAL.tokens)


@pytest.mark.parametrize(
    ("name", "continued"),
    [
        ("whole", sent_again),
        ("stream async", sent_again),
        ("whole async", by_previous_id),
        ("stream", by_previous_id),
        ("socket", by_previous_id),
        ("whole", by_reference),
        ("socket async", by_reference),
    ],
)
async def test_tools_to_a_final_answer(
    start: Starter, name: str, continued: Callable[[Response], dict[str, Any]]
) -> None:
    rig, way = await start(in_order(BOTH, FINAL)), WAYS[name]
    first = await way(rig, input=[ASKED], **SETTINGS)
    await check_both_turns(rig, await way(rig, **continued(first), **SETTINGS))


async def test_a_stored_response(start: Starter) -> None:
    rig = await start(in_order(BOTH, FINAL))

    def use(client: OpenAI) -> None:
        api: Any = client.responses
        first = api.create(input=[ASKED], instructions="Be brief.", **SETTINGS)
        last = api.create(**by_previous_id(first), **SETTINGS)
        for given in (first, last):
            assert valid(api.retrieve(given.id), known=LATELY_UNKNOWN) == given
        (asked,) = api.input_items.list(first.id)
        assert asked.to_dict()["content"] == [{"type": "input_text", "text": ASKED["content"]}]
        # Page by page, newest first.
        listed = [valid(item).to_dict() for item in api.input_items.list(last.id, limit=1)]
        assert [item["call_id"] for item in listed] == [told["call_id"] for told in results(first)][::-1]
        with pytest.raises(openai.BadRequestError, match="background"):
            api.cancel(last.id)
        api.delete(first.id)
        for lost in (api.retrieve, api.delete, api.cancel, api.input_items.list):
            with pytest.raises(openai.NotFoundError, match=f"Response with id '{first.id}' not found"):
                lost(first.id)
        assert api.retrieve(last.id) == last
        with pytest.raises(openai.BadRequestError, match=f"Previous response with id '{last.id}' not found"):
            api.create(input="more", previous_response_id=last.id, **SETTINGS)
        with pytest.raises(openai.BadRequestError, match=f"Previous response with id '{first.id}' not found"):
            api.create(input="more", previous_response_id=first.id, **SETTINGS)

    await in_thread(rig, use)
    await recorded(rig, Dialect.RESPONSES, BOTH, FINAL)


async def test_a_stored_response_by_the_asynchronous_client(start: Starter) -> None:
    rig = await start(always(FINAL))

    async def use(client: AsyncOpenAI) -> None:
        api: Any = client.responses
        given = await api.create(input=[ASKED], model="fake")
        assert await api.retrieve(given.id) == given
        assert [item.type async for item in api.input_items.list(given.id)] == ["message"]
        await api.delete(given.id)
        with pytest.raises(openai.NotFoundError):
            await api.retrieve(given.id)

    await awaited(rig, use)


async def test_tokens_are_counted_and_nothing_is_generated(start: Starter) -> None:
    rig, request = await start(always(FINAL)), {"input": [ASKED], **SETTINGS}
    counted = await in_thread(rig, lambda client: client.responses.input_tokens.count(**request))
    assert rig.calls() == []
    response = await WAYS["whole"](rig, **request)
    assert response.usage is not None
    assert (counted.object, counted.input_tokens) == ("response.input_tokens", response.usage.input_tokens)
