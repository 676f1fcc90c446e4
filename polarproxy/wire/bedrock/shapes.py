"""The objects of the Converse API that are read and written alike.

Names and members: the service model of `bedrock-runtime` (2023-09-30), which every AWS SDK is generated from. Members
that it requires and that can be done without have defaults here; they are never the ones that are written.
"""

from __future__ import annotations

from typing import Any

import msgspec


class Shape(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """An object of the API: camelCase on the wire, null or absent for None."""


class S3Location(Shape, frozen=True):
    """`bucketOwner` is not kept."""

    uri: str


class MediaSource(Shape, frozen=True):
    """One of its members is given."""

    bytes: str | None = None
    """Base64."""
    s3_location: S3Location | None = None
    text: str | None = None
    content: tuple[TextBlock, ...] | None = None


class TextBlock(Shape, frozen=True):
    """A union whose only kind is text."""

    text: str


class MediaBlock(Shape, frozen=True):
    """Image, sound, film or document."""

    source: msgspec.Raw
    """A `MediaSource`."""
    format: str | None = None
    name: str | None = None
    """Of a document; the API wants one there."""
    context: str | None = None
    """Of a document: what to make of it."""


class ToolUseBlock(Shape, frozen=True):
    """A call of a tool."""

    tool_use_id: str
    name: str
    input: msgspec.Raw
    """Any JSON; of a model's call, an object."""


class ToolResultBlock(Shape, frozen=True):
    """What a tool answered."""

    tool_use_id: str
    content: list[dict[str, msgspec.Raw]]
    status: str | None = None
    """`success` or `error`."""


class ReasoningText(Shape, frozen=True):
    """Reasoning and the token that came with it."""

    text: str = ""
    signature: str | None = None


class GuardText(Shape, frozen=True):
    """Text that a guardrail is to look at."""

    text: str


class Citations(Shape, frozen=True):
    """Text with its sources; the sources are not kept."""

    content: tuple[TextBlock, ...] = ()


class SearchResult(Shape, frozen=True):
    """A passage that a search found."""

    source: str = ""
    title: str = ""
    content: tuple[TextBlock, ...] = ()


class MessageShape(Shape, frozen=True):
    """One message."""

    role: str
    content: list[dict[str, msgspec.Raw]]


class TokenUsage(Shape, frozen=True):
    """`inputTokens` counts what was not read from the cache; `totalTokens` counts everything."""

    input_tokens: int
    output_tokens: int
    total_tokens: int
    cache_read_input_tokens: int | None = None
    cache_write_input_tokens: int | None = None


class Metrics(Shape, frozen=True):
    """How long it took."""

    latency_ms: int
    """From the request to the end of the reply."""


def raw_json(value: Any) -> msgspec.Raw:
    """A value as JSON to be put into a larger one."""
    return msgspec.Raw(msgspec.json.encode(value))
