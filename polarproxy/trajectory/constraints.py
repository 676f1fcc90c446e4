"""What bent the distribution that a call was sampled from, beyond the parameters that every call is recorded with.

A grammar (a form of the output, a tool that must be called), a bias on single tokens, or a least length shut tokens out that
the policy might have sampled, so log-probabilities that a trainer computes of the same tokens are others. Read off the
request as the client sent it; where bodies are not kept, of its shape only whether it wants JSON.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from polarproxy.errors import UNREADABLE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from polarproxy.model import Call


class _Config(msgspec.Struct):
    functionCallingConfig: Any = None  # noqa: N815  (Gemini's name)
    toolChoice: Any = None  # noqa: N815  (Bedrock's name)


class _Asked(msgspec.Struct):
    """The members of a request, of all dialects."""

    tool_choice: Any = None
    toolConfig: _Config | None = None  # noqa: N815  (the name in Gemini and Bedrock)
    tool_config: _Config | None = None
    structured_outputs: Any = None
    logit_bias: Any = None
    bad_words: Any = None
    allowed_token_ids: Any = None
    min_tokens: Any = None


_OF_THE_ENGINE = ("structured_outputs", "logit_bias", "bad_words", "allowed_token_ids", "min_tokens")
"""Members of vLLM's own request (0.32, `ChatCompletionRequest`), which clients of every dialect may give."""

_asked = msgspec.json.Decoder(_Asked)


def constraints(call: Call) -> tuple[str, ...]:
    """In words, what bent the distribution of a call; empty when nothing is known to have."""
    return tuple(_found(call))


def _found(call: Call) -> Iterator[str]:
    if call.shape is not None and call.shape.wants_json:
        yield "a form of the output"
    try:
        asked = _asked.decode(call.request_body)
    except UNREADABLE:
        return
    if _must_call(asked):
        yield "a tool that must be called"
    yield from (f"`{name}`" for name in _OF_THE_ENGINE if getattr(asked, name))


def _must_call(asked: _Asked) -> bool:
    """Whether the choice of tools leaves the model none, in the words of any dialect."""
    config = asked.toolConfig or asked.tool_config or _Config()
    for choice in (asked.tool_choice, config.toolChoice, config.functionCallingConfig):
        if choice == "required":
            return True
        if not isinstance(choice, dict):
            continue
        # OpenAI's and Anthropic's `type`, OpenAI's and Gemini's `mode`, and Bedrock's members.
        if choice.get("type") in ("function", "custom", "any", "tool") or choice.get("mode") in ("required", "ANY"):
            return True
        if not choice.keys().isdisjoint({"any", "tool"}):
            return True
    return False
