"""What a model samples and what every SDK must make of it, in no dialect's own words."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from polarproxy.model import Call, Dialect
from tests.fakes import Reply, Tool, compose
from tests.fakes.sampling import limited, stopped_at_text
from tests.proxy.rig import Rig
from tests.sdks.record import recorded

Part = tuple[Literal["thinking", "text"], str] | tuple[Literal["call"], str, object]
Finish = Literal["stop", "stop_sequence", "length", "tool_calls"]


@dataclass(frozen=True)
class Scene:
    """`sampled` is what of the reply is really sampled, None for all of it."""

    reply: Reply
    said: tuple[Part, ...]
    finish: Finish = "stop"
    tools: bool = False
    """Whether the tools below are offered."""
    stop: str | None = None
    limit: int = 1000
    sampled: Reply | None = None

    @property
    def all_sampled(self) -> Reply:
        return self.sampled or self.reply


@dataclass(frozen=True)
class Counts:
    """Tokens: of the prompt, those of it that were cached, sampled, and those of them that are reasoning."""

    prompt: int
    cached: int
    sampled: int
    thought: int | None
    """None: the dialect does not tell."""


@dataclass(frozen=True)
class Given:
    """What an SDK gave. `finish` is the dialect's own word, `stop` the stop string if the dialect tells it."""

    id: str
    model: str | None
    said: tuple[Part, ...]
    finish: str
    counts: Counts
    stop: str | None = None


WEATHER: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "number"}},
    "required": ["city"],
}
"""The parameters of the tool `weather`."""

LONG = compose("one two three four five six")
THOUGHTFUL = compose("Four.", reasoning="Two and two.")


def both(comma: str, colon: str) -> Reply:
    """Two calls at once, spelled as an SDK spells the objects it sends back, so that what comes back is what was sampled."""
    arguments = [json.dumps(call, separators=(comma, colon)) for call in (PARIS, LYON)]
    return compose("Let me see.", reasoning="Two cities.", tools=[Tool("weather", spelled) for spelled in arguments])


PARIS, LYON = {"city": "Paris"}, {"city": "Lyon", "days": 1.5}
BOTH = both(", ", ": ")
FINAL = compose("Sun in both.", reasoning="Both are told.")

SCENES = {
    "text": Scene(compose("Hello you."), (("text", "Hello you."),)),
    "split characters": Scene(compose("Grüße 👋🏽!"), (("text", "Grüße 👋🏽!"),)),
    "nothing": Scene(compose(""), ()),
    "thought": Scene(THOUGHTFUL, (("thinking", "Two and two."), ("text", "Four."))),
    "a call": Scene(
        compose(tools=(Tool("weather", '{"city":  "Par\\u00efs\\n", "days": 1e0}'),)),
        (("call", "weather", {"city": "Parïs\n", "days": 1.0}),),
        "tool_calls",
        tools=True,
    ),
    "calls": Scene(
        BOTH,
        (
            ("thinking", "Two cities."),
            ("text", "Let me see."),
            ("call", "weather", PARIS),
            ("call", "weather", LYON),
        ),
        "tool_calls",
        tools=True,
    ),
    "stopped": Scene(
        LONG, (("text", "one two "),), "stop_sequence", stop="three", sampled=stopped_at_text(LONG, ["three"])
    ),
    "cut": Scene(LONG, (("text", "one two"),), "length", limit=4, sampled=limited(LONG, 4)),
    "cut in thought": Scene(THOUGHTFUL, (("thinking", "Two and"),), "length", limit=5, sampled=limited(THOUGHTFUL, 5)),
    "cached": Scene(replace(LONG, cached_tokens=7), (("text", "one two three four five six"),)),
}


async def check(
    rig: Rig, dialect: Dialect, given: Mapping[str, Given], finishes: Mapping[Finish, str], *, streamed: bool
) -> list[Call]:
    """All scenes were played once: the SDK gave what was sampled, and the store has it. The calls, in order."""
    calls = await recorded(rig, dialect, *(scene.all_sampled for scene in SCENES.values()))
    for (name, scene), call in zip(SCENES.items(), calls, strict=True):
        told = given[name]
        assert (name, told.said) == (name, scene.said)
        assert (name, told.finish) == (name, finishes[scene.finish])
        assert told.model in (None, "any-model")
        sampled = scene.all_sampled
        thought = None if told.counts.thought is None else sum(token.reasoning for token in sampled.tokens)
        counted = Counts(len(call.prompt_token_ids or ()), sampled.cached_tokens, len(sampled.tokens), thought)
        assert (name, told.counts) == (name, counted)
        assert told.stop is None or told.stop == scene.stop
        assert call.call_id in told.id
        assert (call.streamed, call.requested_model, call.served_model) == (streamed, "any-model", "fake")
    return calls
