"""OpenAI Chat Completions: why a choice ended, and what a reply cost, read and written."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from polarproxy.model import Usage

if TYPE_CHECKING:
    from polarproxy.wire.chat.media import Json
    from polarproxy.wire.neutral.reply import Finish

_FINISHES: dict[str, Finish] = {
    "stop": "stop",
    "length": "length",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "content_filter": "content_filter",
    "abort": "abort",
    "error": "abort",
}


class _PromptDetails(msgspec.Struct, gc=False):
    cached_tokens: int | None = None


class _CompletionDetails(msgspec.Struct, gc=False):
    reasoning_tokens: int | None = None


class UsageMember(msgspec.Struct, gc=False):
    """The `usage` of a reply or a chunk."""

    prompt_tokens: int = 0
    completion_tokens: int | None = None
    prompt_tokens_details: _PromptDetails | None = None
    completion_tokens_details: _CompletionDetails | None = None

    def value(self) -> Usage:
        """The counts."""
        prompt, completion = self.prompt_tokens_details, self.completion_tokens_details
        return Usage(
            prompt_tokens=self.prompt_tokens,
            completion_tokens=self.completion_tokens or 0,
            cached_tokens=None if prompt is None else prompt.cached_tokens,
            reasoning_tokens=None if completion is None else completion.reasoning_tokens,
        )


def read_finish(reason: str, stop_reason: int | str | None, *, called: bool) -> tuple[Finish, str | None]:
    """How a choice ended, and the stop string that ended it.

    vLLM puts the stop string, or the id of a stop token, in `stop_reason`, and says `stop` of a call that the client forced
    by name. A reason that is not known is a stop.
    """
    finish = _FINISHES.get(reason, "stop")
    if finish != "stop":
        return finish, None
    if called:
        return "tool_calls", None
    return ("stop_sequence", stop_reason) if isinstance(stop_reason, str) else ("stop", None)


def write_finish(finish: Finish, stop_sequence: str | None) -> Json:
    """The members of a choice that say how it ended; `stop_reason` is vLLM's."""
    if finish == "stop_sequence":
        return {"finish_reason": "stop", "stop_reason": stop_sequence}
    return {"finish_reason": finish, "stop_reason": None}


def write_usage(usage: Usage) -> Json:
    """The `usage` member."""
    said: Json = {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
    }
    if usage.cached_tokens is not None:
        said["prompt_tokens_details"] = {"cached_tokens": usage.cached_tokens}
    if usage.reasoning_tokens is not None:
        said["completion_tokens_details"] = {"reasoning_tokens": usage.reasoning_tokens}
    return said
