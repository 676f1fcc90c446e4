"""The `response` object around a reply, complete: what was sampled, and the settings that the client is told again.

Source: OpenAI API reference, "The response object". Members that this proxy has no use for are null.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec

from polarproxy.wire.neutral.reading import read
from polarproxy.wire.responses.errors import error_code
from polarproxy.wire.responses.reading import given, members

if TYPE_CHECKING:
    from collections.abc import Sequence

    from polarproxy.model import Usage
    from polarproxy.wire.neutral.reply import Envelope, Finish
    from polarproxy.wire.responses.output_items import Item

Status: TypeAlias = Literal["in_progress", "completed", "incomplete", "failed"]

ABORTED = "The engine gave up on this reply before its end."
_NULL = msgspec.Raw(b"null")
ECHOED = (
    "instructions",
    "max_output_tokens",
    "max_tool_calls",
    "metadata",
    "parallel_tool_calls",
    "previous_response_id",
    "prompt_cache_key",
    "prompt_cache_retention",
    "reasoning",
    "safety_identifier",
    "store",
    "temperature",
    "text",
    "tool_choice",
    "tools",
    "top_logprobs",
    "top_p",
    "truncation",
    "user",
)
"""Members of a request that its reply repeats as they came; the names in `Envelope.context`."""


class Error(msgspec.Struct):
    """Why a response failed."""

    code: str
    message: str


class Incomplete(msgspec.Struct):
    """Why a response ended early."""

    reason: str


class InputDetails(msgspec.Struct):
    """How much of the prompt came from a cache."""

    cached_tokens: int = 0
    cache_write_tokens: int = 0


class OutputDetails(msgspec.Struct):
    """How much of the reply was reasoning."""

    reasoning_tokens: int = 0


class Counts(msgspec.Struct):
    """Usage, in tokens."""

    input_tokens: int
    output_tokens: int
    total_tokens: int = 0
    input_tokens_details: InputDetails | None = None
    output_tokens_details: OutputDetails | None = None


class Response(msgspec.Struct, kw_only=True):
    """A whole response as it is sent."""

    id: str
    object: Literal["response"] = "response"
    created_at: int
    status: Status
    background: bool = False
    completed_at: int | None = None
    error: Error | None = None
    incomplete_details: Incomplete | None = None
    instructions: msgspec.Raw = _NULL
    max_output_tokens: msgspec.Raw = _NULL
    max_tool_calls: msgspec.Raw = _NULL
    model: str
    output: list[Item]
    parallel_tool_calls: msgspec.Raw = msgspec.Raw(b"true")
    previous_response_id: msgspec.Raw = _NULL
    prompt_cache_key: msgspec.Raw = _NULL
    prompt_cache_retention: msgspec.Raw = _NULL
    reasoning: msgspec.Raw = msgspec.Raw(b'{"effort":null,"summary":null}')
    safety_identifier: msgspec.Raw = _NULL
    service_tier: str = "default"
    store: msgspec.Raw = msgspec.Raw(b"true")
    temperature: msgspec.Raw = _NULL
    text: msgspec.Raw = msgspec.Raw(b'{"format":{"type":"text"}}')
    tool_choice: msgspec.Raw = msgspec.Raw(b'"auto"')
    tools: msgspec.Raw = msgspec.Raw(b"[]")
    top_logprobs: msgspec.Raw = msgspec.Raw(b"0")
    top_p: msgspec.Raw = _NULL
    truncation: msgspec.Raw = msgspec.Raw(b'"disabled"')
    usage: Counts | None = None
    user: msgspec.Raw = _NULL
    metadata: msgspec.Raw = msgspec.Raw(b"{}")
    # What the API has besides, and we never do.
    access_programs: None = None
    conversation: None = None
    image: None = None
    input_transformations: None = None
    moderation: None = None
    prompt: None = None
    prompt_cache_diagnostics: None = None
    prompt_cache_options: None = None
    tool_usage: None = None


def context_of(body: bytes) -> dict[str, bytes]:
    """What a reply is to repeat of the client's own body (before any history was put in); raises `BadRequest`."""
    fields = read(members, body, "the request body")
    return {name: value for name in ECHOED if name in fields and (value := given(fields[name])) is not None}


def begun(envelope: Envelope) -> Response:
    """The response before anything of it is known."""
    response = Response(
        id=f"resp_{envelope.id}", created_at=envelope.created, status="in_progress", model=envelope.model, output=[]
    )
    for name in ECHOED:
        if (value := envelope.context.get(name)) is not None:
            setattr(response, name, msgspec.Raw(value))
    return response


def ended(envelope: Envelope, finish: Finish, output: Sequence[Item], usage: Usage | None) -> Response:
    """The response at its end."""
    response = begun(envelope)
    response.output = list(output)
    response.usage = counts(usage)
    match finish:
        case "length":
            response.status, response.incomplete_details = "incomplete", Incomplete("max_output_tokens")
        case "content_filter":
            response.status, response.incomplete_details = "incomplete", Incomplete("content_filter")
        case "abort":
            response.status, response.error = "failed", Error("server_error", ABORTED)
        case _:
            response.status = "completed"
    return response


def failed(envelope: Envelope, status: int, message: str, output: Sequence[Item]) -> Response:
    """The response that an error ended."""
    response = begun(envelope)
    response.output = list(output)
    response.status, response.error = "failed", Error(error_code(status, message) or "server_error", message)
    return response


def counts(usage: Usage | None) -> Counts | None:
    """Usage as it is sent; what the engine did not count of the details is 0."""
    if usage is None:
        return None
    return Counts(
        usage.prompt_tokens,
        usage.completion_tokens,
        usage.prompt_tokens + usage.completion_tokens,
        InputDetails(usage.cached_tokens or 0),
        OutputDetails(usage.reasoning_tokens or 0),
    )
