"""Requests of Converse and ConverseStream as neutral ones. The two have one body; model and stream are in the path.

Source: the service model of `bedrock-runtime` (2023-09-30), shapes ConverseRequest and ConverseStreamRequest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from polarproxy.errors import BadRequest
from polarproxy.wire.bedrock.messages import read_messages, read_system
from polarproxy.wire.bedrock.model_fields import ModelFields, read_fields, read_reasoning
from polarproxy.wire.bedrock.reading import NO_PLACE, Block, Reader
from polarproxy.wire.bedrock.shapes import Shape
from polarproxy.wire.bedrock.tools import ToolConfig, read_choice, read_tools
from polarproxy.wire.bedrock.write_request import encode_request as encode_request
from polarproxy.wire.neutral.reading import is_given, require_utf8
from polarproxy.wire.neutral.request import Decoded, OutputFormat, Request, ToolChoice

if TYPE_CHECKING:
    from polarproxy.model import Loss

_NONE = msgspec.Raw()


class _Body(Shape, frozen=True):
    messages: list[msgspec.Raw]
    system: list[Block] | None = None
    inference_config: msgspec.Raw = _NONE
    tool_config: msgspec.Raw = _NONE
    output_config: msgspec.Raw = _NONE
    additional_model_request_fields: msgspec.Raw = _NONE
    request_metadata: dict[str, str] | None = None
    model_id: str | None = None
    """Belongs into the path; some clients repeat it."""


class _Inference(Shape, frozen=True):
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    stop_sequences: tuple[str, ...] = ()


class _Output(Shape, frozen=True):
    text_format: msgspec.Raw = _NONE
    effort: str | None = None


class _Format(Shape, frozen=True):
    type: str
    structure: Block | None = None


class _Schema(Shape, frozen=True):
    schema: str
    name: str | None = None
    description: str | None = None


def decode_request(body: bytes, *, model: str, stream: bool) -> Decoded:
    """The request of a body; raises `BadRequest` naming the member that cannot be understood.

    Members without a place (guardrails, performance, tiers, prompt variables, and those of
    `additionalModelRequestFields` that are not understood) are in `extra`, by their own names.
    """
    require_utf8(body)
    reader = Reader(BadRequest)
    shape, extra = reader.split(body, _Body, "body")
    inference = reader.optional(shape.inference_config, _Inference, "inferenceConfig") or _Inference()
    tools = reader.optional(shape.tool_config, ToolConfig, "toolConfig") or ToolConfig()
    output = reader.optional(shape.output_config, _Output, "outputConfig") or _Output()
    fields, more = ModelFields(), dict[str, bytes]()
    if is_given(shape.additional_model_request_fields):
        fields, more = read_fields(reader, shape.additional_model_request_fields)
    choice = read_choice(reader, tools, "toolConfig")
    request = Request(
        model=model,
        messages=(*read_system(reader, shape.system or ()), *read_messages(reader, shape.messages)),
        stream=stream,
        tools=read_tools(reader, tools, "toolConfig"),
        tool_choice=ToolChoice("none") if fields.forbids_tools() else choice,
        parallel_tool_calls=fields.parallel(),
        max_tokens=inference.max_tokens,
        temperature=inference.temperature,
        top_p=inference.top_p,
        top_k=fields.highest_k(),
        presence_penalty=fields.presence_penalty,
        frequency_penalty=fields.frequency_penalty,
        seed=fields.seed,
        stop=inference.stop_sequences,
        output=_read_output(reader, output),
        reasoning=read_reasoning(reader, fields, output.effort),
        user=fields.user,
        metadata=shape.request_metadata or {},
        extra=more | extra,
    )
    return Decoded(request, _all_losses(reader, more, extra))


def _all_losses(reader: Reader, more: dict[str, bytes], extra: dict[str, bytes]) -> tuple[Loss, ...]:
    for name in more.keys() & extra.keys():
        reader.lose(f"additionalModelRequestFields.{name}", f"`{name}` of the body itself was taken instead")
    return tuple(reader.losses)


def _read_output(reader: Reader, output: _Output) -> OutputFormat | None:
    where = "outputConfig.textFormat"
    form = reader.optional(output.text_format, _Format, where)
    if form is None:
        return None
    raw = (form.structure or {}).get("jsonSchema", _NONE)
    if form.type != "json_schema" or not is_given(raw):
        reader.lose(where, NO_PLACE)
        return None
    schema = reader.read(raw, _Schema, f"{where}.structure.jsonSchema")
    text = schema.schema.encode()
    reader.value(text, dict[str, msgspec.Raw], f"{where}.structure.jsonSchema.schema")
    return OutputFormat(text, schema.name or "output", schema.description)
