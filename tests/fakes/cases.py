"""Requests whose answers pin down vLLM's wire forms: recorded, replayed by the fake, and asked of a real server.

The models are those of `tests.models.train_tiny_chat`, served as `tiny` with a context of 2,048 tokens. Each case names
the base case that samples the same tokens (or more of them), from which the fake knows what to sample.
"""

from dataclasses import dataclass, field
from typing import Any

from tests.models.dialogues import WEATHER_TOOL

Body = dict[str, Any]
IDS: Body = {"return_token_ids": True, "logprobs": True, "top_logprobs": 0}
GREEDY: Body = {"model": "tiny", "temperature": 0}
MAX_MODEL_LEN = 2048
CHAT = "/v1/chat/completions"


@dataclass(frozen=True)
class Case:
    """`sampled_as` is the base case, None for an error. `body` has no `stream`: cases are asked both ways, except those
    with `only` set, which is the value of `stream`."""

    name: str
    body: Body
    sampled_as: str | None = None
    only: bool | None = None

    @property
    def forms(self) -> tuple[bool, ...]:
        return (False, True) if self.only is None else (self.only,)


@dataclass(frozen=True)
class Ask:
    """A base case, and the maker of its variants."""

    name: str
    text: str
    tools: bool = False
    extra: Body = field(default_factory=dict)

    def case(self, name: str | None = None, *, ids: bool = True, only: bool | None = None, **more: Any) -> Case:
        body = {**GREEDY, "messages": [{"role": "user", "content": self.text}]}
        body |= {"tools": [WEATHER_TOOL]} if self.tools else {}
        return Case(name or self.name, body | (IDS if ids else {}) | self.extra | more, self.name, only)


HI = Ask("hi", "hi")
TOOL = Ask("tool", "What is the weather in Paris?", tools=True)
TOOLS = Ask("tools", "Weather in Paris and Lyon?", tools=True)
EMOJI = Ask("emoji", "Write an emoji.")
TWO = Ask("two", "What is 2+2?", extra={"n": 2, "temperature": 2, "top_p": 1, "top_k": 0, "seed": 7, "max_tokens": 24})
TOP = Ask("top", "Count to ten.", extra={"top_logprobs": 3})

BASE = (HI, TOOL, TOOLS, EMOJI, TWO, TOP)

USAGE: Body = {"stream_options": {"include_usage": True}}
CONTINUOUS: Body = {"stream_options": {"include_usage": True, "continuous_usage_stats": True}}

ANSWERS = (
    *(ask.case() for ask in BASE),
    HI.case("hi_plain", ids=False),
    TOOLS.case("tools_plain", ids=False),
    EMOJI.case("emoji_plain", ids=False),
    TWO.case("two_plain", ids=False),
    HI.case("hi_ids_only", ids=False, return_token_ids=True),
    HI.case("hi_logprobs_only", ids=False, logprobs=True),
    HI.case("hi_hidden", include_reasoning=False),
    TOOL.case("tool_hidden", ids=False, include_reasoning=False),
    HI.case("hi_usage", only=True, **USAGE),
    TOOL.case("tool_usage", ids=False, only=True, **USAGE),
    TWO.case("two_usage", only=True, **USAGE),
    HI.case("hi_continuous", only=True, **CONTINUOUS),
    HI.case("hi_stop", stop=["help you"]),
    HI.case("hi_stop_plain", ids=False, stop=["help you"]),
    HI.case("hi_stop_token", stop_token_ids=[2585]),
    TOOL.case("tool_cut", max_tokens=20),
    TOOL.case("tool_cut_plain", ids=False, max_tokens=20),
    TOOL.case("tool_nearly_closed", max_tokens=28),
    HI.case("hi_cut", max_completion_tokens=5),
)

ERRORS = (
    Case("overflow", {**GREEDY, "messages": [{"role": "user", "content": "word " * 2100}]}),
    Case("unknown_model", {"model": "nope", "messages": [{"role": "user", "content": "hi"}]}),
    Case("no_messages", {"model": "tiny"}),
    Case("empty_messages", {"model": "tiny", "messages": []}),
    Case("max_tokens", {**HI.case(ids=False).body, "max_tokens": 3000}),
    Case("top_without_logprobs", {**HI.case(ids=False).body, "top_logprobs": 2}),
    Case("options_without_stream", {**HI.case(ids=False).body, **USAGE}, only=False),
)

CASES = (*ANSWERS, *ERRORS)
