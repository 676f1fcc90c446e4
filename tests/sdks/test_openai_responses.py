"""The OpenAI SDK parses every kind of response into the same objects, whichever way it asks, and they hold what was sampled."""

from dataclasses import dataclass, field
from typing import Any

import pytest
from openai.types.responses import Response

from polarproxy.model import Dialect
from tests.fakes import Reply, Tool, always, compose, in_order
from tests.fakes.sampling import limited, stopped_at_text
from tests.proxy.rig import Starter
from tests.sdks.record import recorded
from tests.sdks.strict import valid
from tests.sdks.ways_openai import EVERY_WAY, LATELY_UNKNOWN, STREAMED, WAYS, Way

WEATHER = {
    "type": "function",
    "name": "weather",
    "description": "The weather in a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    "strict": False,
}
PATCH = {"type": "custom", "name": "patch", "description": "Changes a file."}
CRM = {"type": "namespace", "name": "crm", "description": "Customers.", "tools": [{**WEATHER, "name": "find"}]}
SHELL = {"type": "local_shell"}
TOOLS = [WEATHER, PATCH, CRM, SHELL]


@dataclass(frozen=True)
class Scene:
    """`said` is what the output must hold: the type of each item, and what it says."""

    reply: Reply
    said: tuple[tuple[str, ...], ...]
    request: dict[str, Any] = field(default_factory=dict)
    sampled: Reply | None = None
    """What of the reply is really sampled. None: all of it."""
    status: str = "completed"

    @property
    def all_sampled(self) -> Reply:
        return self.sampled or self.reply


LONG = compose("one two three four five six")
SCENES = {
    "text": Scene(compose("Hello you."), (("message", "Hello you."),)),
    "split characters": Scene(compose("Grüße 👋🏽!"), (("message", "Grüße 👋🏽!"),)),
    "nothing": Scene(compose(""), ()),
    "thought": Scene(
        compose("Four.", reasoning="Two and two."),
        (("reasoning", "Two and two."), ("message", "Four.")),
        {"reasoning": {"effort": "high"}, "include": ["reasoning.encrypted_content"]},
    ),
    "a call": Scene(
        compose(tools=(Tool("weather", '{"city":  "Paris"}'),)),
        (("function_call", "weather", '{"city":  "Paris"}'),),
        {"tools": TOOLS, "tool_choice": "required"},
    ),
    "calls": Scene(
        compose("Let me see.", reasoning="Two.", tools=(Tool("weather", '{"city":"A"}'), Tool("weather", "{}"))),
        (
            ("reasoning", "Two."),
            ("message", "Let me see."),
            ("function_call", "weather", '{"city":"A"}'),
            ("function_call", "weather", "{}"),
        ),
        {"tools": TOOLS, "parallel_tool_calls": True},
    ),
    "a broken call": Scene(
        compose(tools=(Tool("weather", '{"city": "Par'),)),
        (("function_call", "weather", '{"city": "Par'),),
        {"tools": TOOLS},
    ),
    "other tools": Scene(
        compose(
            tools=(
                Tool("patch", '{"input": "*** \\u00e9\\n"}'),
                Tool("crm__find", '{"city": "B"}'),
                Tool("local_shell", '{"command": ["ls"]}'),
            )
        ),
        (
            ("custom_tool_call", "patch", "*** é\n"),
            ("function_call", "find", '{"city": "B"}'),
            ("local_shell_call", "ls"),
        ),
        {"tools": TOOLS},
    ),
    "cut": Scene(LONG, (("message", "one two"),), {"max_output_tokens": 4}, limited(LONG, 4), "incomplete"),
}


def said(response: Response) -> tuple[tuple[str, ...], ...]:
    return tuple(_said(item) for item in response.output)


def _said(item: Any) -> tuple[str, ...]:
    match item.type:
        case "message" | "reasoning":
            (part,) = item.content
            return (item.type, part.text)
        case "function_call":
            return (item.type, item.name, item.arguments)
        case "custom_tool_call":
            return (item.type, item.name, item.input)
        case "local_shell_call":
            return (item.type, *item.action.command)
    raise AssertionError(item.type)


def counts(response: Response) -> tuple[int, ...]:
    """Tokens of the prompt, sampled, in all, and of the sampled those that are reasoning."""
    assert response.usage is not None
    usage = response.usage
    return (
        usage.input_tokens,
        usage.output_tokens,
        usage.total_tokens,
        usage.output_tokens_details.reasoning_tokens,
    )


@EVERY_WAY
async def test_what_was_sampled_is_what_the_sdk_gives(start: Starter, way: Way) -> None:
    rig = await start(in_order(*(scene.reply for scene in SCENES.values())))
    given = {name: await way(rig, model="gpt-5", input="hi", **scene.request) for name, scene in SCENES.items()}
    calls = await recorded(rig, Dialect.RESPONSES, *(scene.all_sampled for scene in SCENES.values()))
    assert {name: said(valid(response, known=LATELY_UNKNOWN)) for name, response in given.items()} == {
        name: scene.said for name, scene in SCENES.items()
    }
    for (name, scene), response, call in zip(SCENES.items(), given.values(), calls, strict=True):
        assert (name, response.status, response.model) == (name, scene.status, "gpt-5")
        assert response.id == f"resp_{call.call_id}"
        assert (call.streamed, call.requested_model, call.served_model) == (way in STREAMED, "gpt-5", "fake")
        prompt, sampled = len(call.prompt_token_ids or ()), len(scene.all_sampled.tokens)
        thought = sum(token.reasoning for token in scene.all_sampled.tokens)
        assert (name, counts(response)) == (name, (prompt, sampled, prompt + sampled, thought))


@EVERY_WAY
async def test_settings_come_back_as_they_were_sent(start: Starter, way: Way) -> None:
    rig = await start(always(compose("Hello.")))
    sent: dict[str, Any] = {
        "instructions": "Be brief.",
        "max_output_tokens": 100,
        "metadata": {"run": "7"},
        "parallel_tool_calls": False,
        "prompt_cache_key": "k",
        "reasoning": {"effort": "low", "summary": "auto"},
        "store": False,
        "temperature": 0.5,
        "text": {"format": {"type": "text"}, "verbosity": "low"},
        "tool_choice": {"type": "function", "name": "weather"},
        "tools": TOOLS,
        "top_p": 0.75,
        "user": "u",
    }
    response = valid(
        await way(rig, model="fake", input=[{"role": "user", "content": "hi"}], **sent), known=LATELY_UNKNOWN
    )
    back = response.to_dict()
    assert {name: back[name] for name in sent} == sent
    (call,) = await recorded(rig, Dialect.RESPONSES, compose("Hello."))
    assert way in STREAMED or response._request_id == f"req_{call.call_id}"
    assert (call.sampling.temperature, call.sampling.top_p, call.sampling.max_tokens) == (0.5, 0.75, 100)
    body = rig.received[0].json
    assert [message["role"] for message in body["messages"]] == ["system", "user"]
    assert body["tool_choice"] == {"type": "function", "function": {"name": "weather"}}
    assert body["reasoning_effort"] == "low"
    assert {loss.where for loss in call.losses} >= {"reasoning.summary", "text.verbosity"}


@pytest.mark.parametrize("way", [WAYS["whole"], WAYS["stream async"]], ids=["whole", "stream async"])
async def test_a_stop_string_of_an_engine_that_extends_the_api(start: Starter, way: Way) -> None:
    rig = await start(always(LONG))
    response = await way(rig, model="fake", input="hi", extra_body={"stop": ["three"]})
    assert (response.status, response.output_text) == ("completed", "one two ")
    (call,) = await recorded(rig, Dialect.RESPONSES, stopped_at_text(LONG, ["three"]))
    assert call.completions[0].stop_reason == "three"
