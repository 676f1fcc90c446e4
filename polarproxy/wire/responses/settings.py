"""Members of a request that are neither conversation nor tools: reasoning, the format of text, and what we answer ourselves.

Source: OpenAI API reference, "Create a model response".
"""

from __future__ import annotations

import msgspec

from polarproxy.errors import BadRequest
from polarproxy.model import Loss
from polarproxy.wire.neutral.reading import read
from polarproxy.wire.neutral.request import Effort, OutputFormat, Reasoning
from polarproxy.wire.responses.errors import PREVIOUS_NOT_FOUND
from polarproxy.wire.responses.reading import NONE, Members, given, members

_ANSWERED = (
    "client_metadata",
    "generate",
    "prompt_cache_key",
    "prompt_cache_options",
    "prompt_cache_retention",
    "safety_identifier",
    "service_tier",
    "store",
    "stream_id",
    "stream_options",
    "type",
)
"""Members that the proxy answers or that say nothing about the prompt; they are in the record as they came."""
_LEFT_OUT = {
    "access_programs": "choices of access are the provider's",
    "background_options": "there is no work in the background here",
    "context_management": "the context is never compacted here",
    "image": "images are passed on as they are",
    "max_tool_calls": "limits tools that the provider runs; there are none here",
    "moderation": "there is no moderation here",
}
_REFUSED = {
    "conversation": "conversations are not kept here; send the items, or previous_response_id",
    "prompt": "prompt templates are not kept here; send the text",
}
_SEAL = "reasoning.encrypted_content"

READ_ELSEWHERE = frozenset(
    (*_ANSWERED, *_LEFT_OUT, *_REFUSED, "background", "include", "previous_response_id", "top_logprobs", "truncation")
)
"""Members that this module reads or passes over; they are not kept in `Request.extra`."""

_flag = msgspec.json.Decoder(bool)
_word = msgspec.json.Decoder(str)
_words = msgspec.json.Decoder(list[str])
_count = msgspec.json.Decoder(int)


def report_settings(fields: Members, losses: list[Loss]) -> None:
    """Reports what has no place with the engine; raises `BadRequest` for what cannot be done at all."""
    said = {name: value for name, raw in fields.items() if (value := given(raw)) is not None}
    for name, why in _REFUSED.items():
        if name in said:
            raise BadRequest(f"{name}: {why}")
    if "background" in said and read(_flag, said["background"], "background"):
        raise BadRequest("background: work in the background is not supported here; leave it out or set it to false")
    if "previous_response_id" in said:
        previous = read(_word, said["previous_response_id"], "previous_response_id")
        raise BadRequest(previous_not_found(previous))
    losses += [Loss(name, f"{why}; left out") for name, why in _LEFT_OUT.items() if name in said]
    included = read(_words, said["include"], "include") if "include" in said else []
    losses += [Loss("include", f"{wanted} is not given here") for wanted in included if wanted != _SEAL]
    if "top_logprobs" in said and read(_count, said["top_logprobs"], "top_logprobs"):
        losses.append(Loss("top_logprobs", "logprobs are in the record, not in the reply"))
    if "truncation" in said and read(_word, said["truncation"], "truncation") != "disabled":
        losses.append(Loss("truncation", "the context is never cut here; one that is too long is an error"))


def previous_not_found(id: str) -> str:
    """The message for a `previous_response_id` that names no response that is kept."""
    return f"{PREVIOUS_NOT_FOUND} '{id}' not found."


class _Reasoning(msgspec.Struct):
    effort: str | None = None


_reasoning = msgspec.json.Decoder(_Reasoning)
_REASONING = {
    "summary": "reasoning is given in full instead",
    "generate_summary": "reasoning is given in full instead",
    "context": "which earlier reasoning is read is the chat template's choice",
    "mode": "there is one mode here",
}
_PLAIN = {"context": (b'"auto"',), "mode": (b'"standard"',)}
"""Values that ask for what is done anyway."""


def read_reasoning(raw: msgspec.Raw, losses: list[Loss]) -> Reasoning | None:
    """How to think; raises `BadRequest`."""
    if (value := given(raw)) is None:
        return None
    said = read(_reasoning, value, "reasoning")
    for name, member in members.decode(value).items():
        if name != "effort" and given(member) not in (None, *_PLAIN.get(name, ())):
            losses.append(Loss(f"reasoning.{name}", f"{_REASONING.get(name, 'not understood')}; left out"))
    if said.effort is None:
        return None
    try:
        return Reasoning(effort=msgspec.convert(said.effort, Effort))
    except msgspec.ValidationError:
        losses.append(Loss("reasoning.effort", f"{said.effort!r} is not understood; left out"))
        return None


def write_reasoning(reasoning: Reasoning | None, losses: list[Loss]) -> _Reasoning | None:
    """How to think, as effort; a budget and mere switching on are reported."""
    if reasoning is None:
        return None
    if reasoning.budget is not None:
        losses.append(Loss("reasoning.budget", "a limit in tokens has no place here; left out"))
    if reasoning.shown is False:
        losses.append(Loss("reasoning.shown", "reasoning cannot be hidden here; left out"))
    if reasoning.effort is None and reasoning.enabled is False:
        return _Reasoning("none")
    if reasoning.enabled is not None:
        losses.append(Loss("reasoning.enabled", "effort is all that can be said here; left out"))
    return None if reasoning.effort is None else _Reasoning(reasoning.effort)


class _Format(msgspec.Struct, omit_defaults=True):
    type: str = "text"
    name: str = "output"
    schema: msgspec.Raw = NONE
    description: str | None = None
    strict: bool | None = None


class _Text(msgspec.Struct):
    format: _Format | None = None
    verbosity: str | None = None


_text = msgspec.json.Decoder(_Text)


def read_format(raw: msgspec.Raw, losses: list[Loss]) -> OutputFormat | None:
    """The format of the text; None: free text. Raises `BadRequest`."""
    said = _Text() if (value := given(raw)) is None else read(_text, value, "text")
    if said.verbosity not in (None, "medium"):
        losses.append(Loss("text.verbosity", "the engine has no such setting; left out"))
    format = said.format or _Format()
    match format.type:
        case "json_schema":
            schema = given(format.schema)
            if schema is None:
                raise BadRequest("text.format: `schema` is missing")
            return OutputFormat(schema, format.name, format.description, format.strict)
        case "json_object":
            return OutputFormat(None)
        case "text":
            return None
    losses.append(Loss("text.format", f"a format of type {format.type!r}; left out"))
    return None


class _JsonObject(msgspec.Struct, tag_field="type", tag="json_object"):
    pass


class _JsonSchema(msgspec.Struct, tag_field="type", tag="json_schema", omit_defaults=True):
    name: str
    schema: msgspec.Raw
    description: str | None = None
    strict: bool | None = None


class _WrittenText(msgspec.Struct):
    format: _JsonObject | _JsonSchema


def write_format(output: OutputFormat | None) -> _WrittenText | None:
    """The member `text` for a format; None: free text."""
    if output is None:
        return None
    if output.schema is None:
        return _WrittenText(_JsonObject())
    schema = msgspec.Raw(output.schema)
    return _WrittenText(_JsonSchema(output.name, schema, output.description, output.strict))
