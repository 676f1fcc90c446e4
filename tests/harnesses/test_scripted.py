"""The scripted engine itself: which rule answers, and that its faults fall where they are written."""

import json
import time
from typing import Any

import aiohttp
import pytest

from tests.fakes import FakeEngine, Received
from tests.harnesses.scripted import (
    CONTEXT,
    Ask,
    Rule,
    Scenario,
    anything,
    asked,
    cut,
    filled,
    offered,
    overflows,
    says,
    uses,
)

SHELL = {"type": "function", "function": {"name": "bash", "parameters": {}}}
ACT = uses("bash", text="I will.", reasoning="Hm, so.", command="ls")


def received(text: str, *, tools: bool = True) -> Received:
    body = {"messages": [{"role": "user", "content": text}], "tools": [SHELL] if tools else None}
    return Received("POST", "/v1/chat/completions", {}, json.dumps(body).encode(), time.monotonic())


def test_the_first_rule_that_fits_and_has_turns_left_answers() -> None:
    first, second, title = says("1"), says("2"), says("A title")
    scenario = Scenario(
        Rule("title", lambda ask: not ask.tools, (title,), repeat=True),
        Rule("main", offered("bash"), (first, second)),
        Rule("rest", asked("still"), (says("3"),)),
    )
    turns = [scenario(received("go", tools=tools)) for tools in (True, False, True, False)]
    assert turns == [first, title, second, title]
    assert scenario(received("still there?")) == says("3")
    assert scenario.order == ["main", "title", "main", "title", "rest"]
    assert not scenario.unexpected


def test_what_no_rule_answers_is_kept() -> None:
    scenario = Scenario(Rule("main", anything, (says("1"),)))
    scenario(received("one"))
    scenario(received("two"))
    assert [ask.last for ask in scenario.unexpected] == ["two"]


def test_content_parts_are_read_as_text() -> None:
    body = {"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}]}
    ask = Ask(Received("POST", "/", {}, json.dumps(body).encode(), 0.0))
    assert (ask.said, ask.tools) == (("ab",), frozenset())


@pytest.mark.parametrize("part", ["reasoning", "text", "call"])
async def test_a_cut_falls_inside_its_part(part: Any) -> None:
    seen = await streamed(Scenario(Rule("main", anything, (cut(ACT, part),))))
    deltas = [event["choices"][0]["delta"] for event in seen]
    shown = {
        "reasoning": any(delta.get("reasoning") for delta in deltas),
        "text": any(delta.get("content") for delta in deltas),
        "call": any(delta.get("tool_calls") for delta in deltas),
    }
    parts = list(shown)
    assert [shown[name] for name in parts] == [place <= parts.index(part) for place in range(len(parts))]
    assert not any(event["choices"][0]["finish_reason"] for event in seen)


async def streamed(scenario: Scenario) -> list[Any]:
    """The events that a client gets before the connection breaks; with ids, so that every engine step is an event."""
    body = {"model": "fake", "messages": [{"role": "user", "content": "hi"}], "stream": True, "return_token_ids": True}
    received = bytearray()

    async def read(content: aiohttp.StreamReader) -> None:
        async for chunk in content.iter_any():
            received.extend(chunk)

    async with (
        FakeEngine(scenario, max_model_len=CONTEXT) as engine,
        aiohttp.ClientSession() as http,
        http.post(f"{engine.url}/v1/chat/completions", json=body) as reply,
    ):
        with pytest.raises(aiohttp.ClientError):
            await read(reply.content)
    return [json.loads(event.removeprefix(b"data: ")) for event in received.split(b"\n\n")[:-1]]


async def test_an_overflow_is_refused_in_the_engine_s_words_and_a_fill_shows_in_usage() -> None:
    scenario = Scenario(Rule("main", anything, (overflows(), filled(says("ok"), 1234))))
    body = {"model": "fake", "messages": [{"role": "user", "content": "hi"}]}
    async with FakeEngine(scenario, max_model_len=CONTEXT) as engine, aiohttp.ClientSession() as http:
        url = f"{engine.url}/v1/chat/completions"
        async with http.post(url, json=body) as refused, http.post(url, json=body) as filled_up:
            assert refused.status == 400
            assert "maximum context length is 262144 tokens" in (await refused.json())["error"]["message"]
            assert (await filled_up.json())["usage"]["prompt_tokens"] == 1234
