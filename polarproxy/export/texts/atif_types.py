"""Harbor's Agent Trajectory Interchange Format (ATIF), version 1.8: its types. Extra fields are forbidden.

Source: harbor 0.26, `harbor.models.trajectories`. What is None is left out of the file.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import msgspec

SCHEMA_VERSION = "ATIF-v1.8"
_SUFFIXES = {
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".png": "image/png",
    ".gif": "image/gif",
    ".webp": "image/webp",
}


def image_type(mime: str, url: str) -> str | None:
    """The media type of an image, of those that the format knows; by its address where nobody said. None: it has no place."""
    if "://" not in url[:16]:
        return None
    if mime in _SUFFIXES.values():
        return mime
    path = url.partition("?")[0].lower()
    return next((kind for suffix, kind in _SUFFIXES.items() if mime == "image/*" and path.endswith(suffix)), None)


class Source(msgspec.Struct):
    """Where an image lies."""

    media_type: str
    path: str


class ContentPart(msgspec.Struct, omit_defaults=True):
    """Text or an image. Either `text` or `source`."""

    type: Literal["text", "image"]
    text: str | None = None
    source: Source | None = None


Content: TypeAlias = str | list[ContentPart]


class ToolCall(msgspec.Struct):
    """A call of a tool."""

    tool_call_id: str
    function_name: str
    arguments: msgspec.Raw
    """A JSON object, spelled as it was sampled, in one line."""


class SubagentRef(msgspec.Struct, omit_defaults=True):
    """Names an embedded trajectory of the same file."""

    trajectory_id: str
    session_id: str | None = None


class Result(msgspec.Struct, omit_defaults=True):
    """What came back. `source_call_id` None: of no call that can be told."""

    source_call_id: str | None = None
    content: Content | None = None
    subagent_trajectory_ref: list[SubagentRef] | None = None


class Observation(msgspec.Struct):
    """What an agent saw of what it did."""

    results: list[Result]


class Metrics(msgspec.Struct, omit_defaults=True):
    """Of one call of the model. Logprobs align with completion ids."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int | None = None
    prompt_token_ids: list[int] | None = None
    completion_token_ids: list[int] | None = None
    logprobs: list[float] | None = None
    extra: dict[str, Any] | None = None


class Step(msgspec.Struct, omit_defaults=True):
    """One step. `is_copied_context`: it stands earlier in the file, too, and is not to be trained."""

    step_id: int
    source: Literal["system", "user", "agent"]
    message: Content
    timestamp: str | None = None
    model_name: str | None = None
    reasoning_effort: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[ToolCall] | None = None
    observation: Observation | None = None
    metrics: Metrics | None = None
    is_copied_context: bool | None = None
    llm_call_count: int | None = None
    """0: the client wrote what an agent says."""
    extra: dict[str, Any] | None = None


class Agent(msgspec.Struct, omit_defaults=True):
    """The program that acted."""

    name: str
    version: str
    model_name: str | None = None
    tool_definitions: list[dict[str, Any]] | None = None


class FinalMetrics(msgspec.Struct, omit_defaults=True):
    """Sums over the steps that sampled."""

    total_prompt_tokens: int
    total_completion_tokens: int
    total_steps: int
    total_cached_tokens: int | None = None
    extra: dict[str, Any] | None = None


class Trajectory(msgspec.Struct, omit_defaults=True):
    """One agent's run. An embedded one has a `trajectory_id`."""

    agent: Agent
    steps: list[Step]
    session_id: str
    trajectory_id: str
    schema_version: str = ""
    final_metrics: FinalMetrics | None = None
    extra: dict[str, Any] | None = None
    subagent_trajectories: list[Trajectory] | None = None
