"""Requests of Anthropic Messages: bodies of `/v1/messages` and of `/v1/messages/count_tokens`.

Source: Anthropic API reference, "Create a message", "Count tokens in a message" (with the beta members that clients send).
Everything that is not carried is a `Loss`, except what says nothing to the model (`cache_control`, …: see
`docs/reference/dialects/messages.md`). Unknown members of the body itself survive in `extra`.
`encode_request` is for clients and for the laws; the proxy itself only reads requests of this dialect.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from polarproxy.model import Loss
from polarproxy.wire.messages.members import COUNT, FLAG, INTEGER, NUMBER, TEXT, TEXTS, Members, Reading
from polarproxy.wire.messages.request_messages import read_messages
from polarproxy.wire.messages.request_out import write_messages, write_system
from polarproxy.wire.messages.request_settings import (
    lose_provider_only,
    read_effort,
    read_output,
    read_reasoning,
    sayable,
    write_output_config,
    write_thinking,
)
from polarproxy.wire.messages.request_tools import read_tool_choice, read_tools, write_tool_choice, write_tools
from polarproxy.wire.neutral.reading import require_utf8
from polarproxy.wire.neutral.request import Decoded, Encoded, Request

if TYPE_CHECKING:
    from polarproxy.wire.messages.request_out import OutMessage, System
    from polarproxy.wire.messages.request_settings import OutputConfig, Thinking
    from polarproxy.wire.messages.request_tools import Choice, ClientTool, Function


def decode_request(body: bytes, *, counting: bool = False) -> Decoded:
    """Reads a body; `counting`: of `count_tokens`, which has no `max_tokens`.

    Raises `BadRequest`, naming the member, for what the real API would refuse too: no JSON object, no messages, no
    `max_tokens`, a known member of another type.
    """
    require_utf8(body)
    members = Members(body, "")
    reading = Reading()
    if not counting:
        members.need("max_tokens", COUNT)
    effort = read_effort(members, reading)
    messages = read_messages(members, effort, reading)
    tools = read_tools(members, reading)
    stop = members.get("stop_sequences", TEXTS) or []
    choice, parallel = read_tool_choice(members, tools, reading)
    lose_provider_only(members, reading)
    request = Request(
        model=members.get("model", TEXT),
        messages=messages,
        stream=members.get("stream", FLAG) or False,
        tools=tools,
        tool_choice=choice,
        parallel_tool_calls=parallel,
        max_tokens=members.get("max_tokens", COUNT),
        temperature=members.get("temperature", NUMBER),
        top_p=members.get("top_p", NUMBER),
        top_k=members.get("top_k", INTEGER),
        stop=tuple(stop),
        output=read_output(members, reading),
        reasoning=read_reasoning(members, effort, reading),
        user=_read_user(members, reading),
        extra=dict(members.rest()),
    )
    return Decoded(request, tuple(reading.losses))


def _read_user(body: Members, reading: Reading) -> str | None:
    metadata = body.object("metadata")
    if metadata is None:
        return None
    user = metadata.get("user_id", TEXT)
    reading.lose_rest(metadata)
    return user


class _Metadata(msgspec.Struct):
    user_id: str


class _Body(msgspec.Struct, omit_defaults=True, kw_only=True):
    model: str | None = None
    messages: list[OutMessage]
    max_tokens: int | None = None
    system: System | None = None
    stream: bool = False
    tools: list[Function | ClientTool] = []
    tool_choice: Choice | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    stop_sequences: tuple[str, ...] = ()
    output_config: OutputConfig | None = None
    thinking: Thinking | None = None
    metadata: _Metadata | None = None


_UNSAYABLE = ("presence_penalty", "frequency_penalty", "seed", "n")


def encode_request(request: Request) -> Encoded:
    """Writes a body; a request without `max_tokens` makes one that only `count_tokens` takes."""
    losses: list[Loss] = []
    said = sayable(request.reasoning, losses)
    system, rest = write_system(request.messages, losses)
    body = _Body(
        model=request.model,
        messages=write_messages(rest, losses),
        max_tokens=request.max_tokens,
        system=system,
        stream=request.stream,
        tools=write_tools(request.tools, losses),
        tool_choice=write_tool_choice(request, losses),
        temperature=request.temperature,
        top_p=request.top_p,
        top_k=request.top_k,
        stop_sequences=request.stop,
        output_config=write_output_config(said, request.output, losses),
        thinking=write_thinking(said),
        metadata=None if request.user is None else _Metadata(request.user),
    )
    losses += [
        Loss(name, "this dialect has no such member") for name in _UNSAYABLE if getattr(request, name) is not None
    ]
    if request.metadata:
        losses.append(Loss("metadata", "metadata of this dialect holds a user id only"))
    fields = msgspec.json.decode(msgspec.json.encode(body), type=dict[str, msgspec.Raw])
    fields.update({name: msgspec.Raw(value) for name, value in request.extra.items() if name not in fields})
    return Encoded(msgspec.json.encode(fields), tuple(losses))
