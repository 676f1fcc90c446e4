"""Neutral requests as the body of Converse and ConverseStream.

For clients and for the laws; the proxy itself only reads requests of this dialect.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from polarproxy.model import Loss
from polarproxy.wire.bedrock.messages import write_conversation
from polarproxy.wire.bedrock.model_fields import write_fields
from polarproxy.wire.bedrock.shapes import raw_json
from polarproxy.wire.bedrock.tools import write_tools
from polarproxy.wire.neutral.request import Encoded, OutputFormat, Request

if TYPE_CHECKING:
    from polarproxy.wire.bedrock.reading import Block

_OWN_MEMBERS = (
    "guardrailConfig",
    "performanceConfig",
    "serviceTier",
    "projectIdentifier",
    "promptVariables",
    "additionalModelResponseFieldPaths",
)
"""Members of the body that the neutral form has no place for; in `extra` they are found by these names."""


def encode_request(request: Request) -> Encoded:
    """The body of a request; its model and whether it streams belong into the path."""
    losses: list[Loss] = []
    system, messages = write_conversation(request.messages, losses)
    body: Block = {"messages": raw_json(messages)}
    fields = write_fields(request, losses)
    for name in _OWN_MEMBERS:
        if name in fields:
            body[name] = fields.pop(name)
    members = {
        "system": system,
        "inferenceConfig": _write_inference(request),
        "toolConfig": write_tools(request.tools, request.tool_choice, losses),
        "outputConfig": _write_output(request, losses),
        "additionalModelRequestFields": fields,
        "requestMetadata": request.metadata,
    }
    body |= {name: raw_json(value) for name, value in members.items() if value}
    if request.reasoning is not None and request.reasoning.shown is False:
        losses.append(Loss("reasoning.shown", "this API always shows reasoning; left out"))
    if request.n is not None:
        losses.append(Loss("n", "this API gives one answer; left out"))
    if request.stream_usage:
        losses.append(Loss("stream_usage", "this API always tells the usage; left out"))
    return Encoded(msgspec.json.encode(body), tuple(losses))


def _write_inference(request: Request) -> dict[str, float | tuple[str, ...]]:
    members = {
        "maxTokens": request.max_tokens,
        "temperature": request.temperature,
        "topP": request.top_p,
        "stopSequences": request.stop or None,
    }
    return {name: value for name, value in members.items() if value is not None}


def _write_output(request: Request, losses: list[Loss]) -> dict[str, msgspec.Raw]:
    members: dict[str, msgspec.Raw] = {}
    if request.reasoning is not None and request.reasoning.effort is not None:
        members["effort"] = raw_json(request.reasoning.effort)
    if request.output is not None:
        members |= _write_format(request.output, losses)
    return members


def _write_format(output: OutputFormat, losses: list[Loss]) -> dict[str, msgspec.Raw]:
    if output.schema is None:
        losses.append(Loss("output", "this API wants a schema for structured output; left out"))
        return {}
    if output.strict is not None:
        losses.append(Loss("output.strict", "this API has no such member; left out"))
    schema = {"schema": output.schema.decode(), "name": output.name}
    if output.description is not None:
        schema["description"] = output.description
    return {"textFormat": raw_json({"type": "json_schema", "structure": {"jsonSchema": schema}})}
