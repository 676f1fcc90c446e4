"""OpenAI Chat Completions: a request between its JSON and the neutral form; what engines are asked with.

Source: OpenAI API reference, "Create chat completion"; vLLM's `ChatCompletionRequest` (0.32) for the members that only
engines know.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from polarproxy.errors import BadRequest
from polarproxy.model import Loss
from polarproxy.wire.chat.engine_fields import ENGINE_FIELDS
from polarproxy.wire.chat.members import Members
from polarproxy.wire.chat.messages_in import decode_messages
from polarproxy.wire.chat.messages_out import Writer
from polarproxy.wire.chat.request_tools import (
    decode_tools,
    encode_choice,
    encode_format,
    encode_tools,
    take_choice,
    take_format,
)
from polarproxy.wire.neutral.request import Decoded, Effort, Encoded, Reasoning, Request

if TYPE_CHECKING:
    from polarproxy.wire.chat.media import Json

_object = msgspec.json.Decoder(dict[str, msgspec.Raw])
_text = msgspec.json.Decoder(str)
_bool = msgspec.json.Decoder(bool, strict=False)
_number = msgspec.json.Decoder(float, strict=False)
_integer = msgspec.json.Decoder(int, strict=False)
_stops = msgspec.json.Decoder(str | list[str])
_texts = msgspec.json.Decoder(dict[str, str])
_effort = msgspec.json.Decoder(Effort)
_encode = msgspec.json.Encoder().encode


def decode_request(body: bytes) -> Decoded:
    """Reads a request; raises `BadRequest` for a body that is not one, naming the member."""
    members = Members(body)
    if "messages" not in members.left:
        raise BadRequest("`messages` is missing")
    messages, losses = decode_messages(members.left.pop("messages"))
    tools, lost_tools = decode_tools(members.left.pop("tools", msgspec.Raw(b"[]")))
    limit, old_limit = members.take("max_completion_tokens", _integer), members.take("max_tokens", _integer)
    stop = members.take("stop", _stops)
    request = Request(
        model=members.take("model", _text),
        messages=messages,
        stream=members.take("stream", _bool) or False,
        tools=tools,
        tool_choice=take_choice(members),
        parallel_tool_calls=members.take("parallel_tool_calls", _bool),
        max_tokens=old_limit if limit is None else limit,
        temperature=members.take("temperature", _number),
        top_p=members.take("top_p", _number),
        top_k=members.take("top_k", _integer),
        presence_penalty=members.take("presence_penalty", _number),
        frequency_penalty=members.take("frequency_penalty", _number),
        seed=members.take("seed", _integer),
        n=members.take("n", _integer),
        stop=(stop,) if isinstance(stop, str) else tuple(stop or ()),
        output=take_format(members),
        reasoning=_reasoning(members),
        stream_usage=members.take_inner("stream_options", "include_usage") or False,
        user=members.take_if("user", _text),
        metadata=members.take_if("metadata", _texts) or {},
        extra={name: bytes(value) for name, value in members.left.items()},
    )
    return Decoded(request, (*losses, *lost_tools))


def _reasoning(members: Members) -> Reasoning | None:
    said = Reasoning(
        enabled=members.take_inner("chat_template_kwargs", "enable_thinking"),
        effort=members.take_if("reasoning_effort", _effort),
        budget=members.take_if("thinking_token_budget", _integer),
        shown=members.take_if("include_reasoning", _bool),
    )
    return None if said == Reasoning() else said


def encode_request(request: Request, *, keep_unknown: bool = False) -> Encoded:
    """Writes a request for an engine, which is told only what it knows and can render.

    What the client wants hidden is hidden when the reply is written: an engine that hides reasoning gives no ids of it.

    `keep_unknown`: write it for any reader of chat instead; nothing that chat can say is changed or left out.
    Raises `BadRequest` for members of `extra` that the engine would refuse, and that more is put into.
    """
    engine = not keep_unknown
    writer = Writer(engine)
    body: Json = {} if request.model is None else {"model": request.model}
    body["messages"] = writer.write(request.messages)
    losses = writer.losses
    if request.tools:
        body["tools"], lost = encode_tools(request.tools, engine=engine)
        losses += lost
    if request.tool_choice is not None:
        choice, lost = encode_choice(request.tool_choice, request.tools)
        body |= {} if choice is None else {"tool_choice": choice}
        losses += lost
    body |= _settings(request)
    if request.output is not None:
        body["response_format"] = encode_format(request.output)
    losses += _add_extra(body, request.extra, engine=engine)
    _add_reasoning(body, request.reasoning)
    if not engine and request.reasoning is not None and request.reasoning.shown is not None:
        body["include_reasoning"] = request.reasoning.shown
    if request.stream and request.stream_usage:
        body["stream_options"] = _inner(body, "stream_options") | {"include_usage": True}
    elif engine and not request.stream:
        body.pop("stream_options", None)
    return Encoded(_encode(body), tuple(losses))


def _settings(request: Request) -> Json:
    """Members that are one value each. `max_tokens` is the name of the limit that engines of any age know."""
    settings: Json = {
        "stream": request.stream or None,
        "parallel_tool_calls": request.parallel_tool_calls,
        "max_tokens": request.max_tokens,
        "temperature": request.temperature,
        "top_p": request.top_p,
        "top_k": request.top_k,
        "presence_penalty": request.presence_penalty,
        "frequency_penalty": request.frequency_penalty,
        "seed": request.seed,
        "n": request.n,
        "stop": request.stop or None,
        "user": request.user,
        "metadata": request.metadata or None,
    }
    return {name: value for name, value in settings.items() if value is not None}


def _add_extra(body: Json, extra: dict[str, bytes], *, engine: bool) -> list[Loss]:
    losses = []
    for name, value in extra.items():
        if name in body:
            losses.append(Loss(name, "said twice; the other one counts"))
        elif engine and name not in ENGINE_FIELDS:
            losses.append(Loss(name, "not a member that the engine knows; left out"))
        else:
            body[name] = msgspec.Raw(value)
    return losses


def _add_reasoning(body: Json, reasoning: Reasoning | None) -> None:
    if reasoning is None:
        return
    if reasoning.effort is not None:
        body["reasoning_effort"] = reasoning.effort
    if reasoning.enabled is not None:
        # A client that says it to the template itself means just that.
        body["chat_template_kwargs"] = {"enable_thinking": reasoning.enabled} | _inner(body, "chat_template_kwargs")
    if reasoning.budget is not None:
        body["thinking_token_budget"] = reasoning.budget


def _inner(body: Json, name: str) -> Json:
    """The members of an object that a client gave; raises `BadRequest` when it gave something else."""
    given = body.get(name)
    if not isinstance(given, msgspec.Raw) or bytes(given) == b"null":
        return {}
    try:
        return dict(_object.decode(given))
    except msgspec.DecodeError as error:
        raise BadRequest(f"`{name}`: {error}") from error
