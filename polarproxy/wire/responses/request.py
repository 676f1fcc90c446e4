"""Bodies of `POST /v1/responses` and neutral requests, both ways.

Source: OpenAI API reference, "Create a model response". `top_k`, `seed`, `stop` and the two penalties are no members of
that API; they are read and written as engines that extend it do.
`encode_request` is for clients and for the laws; the proxy itself only reads requests of this dialect.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from polarproxy.errors import BadRequest
from polarproxy.model import Loss
from polarproxy.wire.neutral.joining import joined
from polarproxy.wire.neutral.reading import read, require_utf8
from polarproxy.wire.neutral.request import Decoded, Encoded, Message, Request, Text, Tool, ToolChoice
from polarproxy.wire.responses.choice import read_choice, write_choice
from polarproxy.wire.responses.read_items import ItemReader, item_kind
from polarproxy.wire.responses.reading import NONE, given, members
from polarproxy.wire.responses.settings import (
    READ_ELSEWHERE,
    read_format,
    read_reasoning,
    report_settings,
    write_format,
    write_reasoning,
)
from polarproxy.wire.responses.tools import ToolNames, ToolReader, write_tools
from polarproxy.wire.responses.write_items import ItemWriter

if TYPE_CHECKING:
    from collections.abc import Sequence

_WHERE = "the request body"


class _Body(msgspec.Struct):
    model: str | None = None
    input: str | list[msgspec.Raw] | None = None
    instructions: str | list[msgspec.Raw] | None = None
    stream: bool | None = None
    tools: list[msgspec.Raw] | None = None
    tool_choice: msgspec.Raw = NONE
    parallel_tool_calls: bool | None = None
    max_output_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    text: msgspec.Raw = NONE
    reasoning: msgspec.Raw = NONE
    user: str | None = None
    metadata: dict[str, str] | None = None


_body = msgspec.json.Decoder(_Body)


class _Tools(msgspec.Struct):
    tools: list[msgspec.Raw] | None = None


_tools = msgspec.json.Decoder(_Tools)


def decode_request(body: bytes) -> Decoded:
    """The request that a body is; raises `BadRequest`, as for a `previous_response_id` that no history was put in for."""
    require_utf8(body)
    said, fields = read(_body, body, _WHERE), read(members, body, _WHERE)
    losses: list[Loss] = []
    report_settings(fields, losses)
    if said.input is None:
        raise BadRequest(f"{_WHERE}: `input` is missing")
    messages, tools, names = _conversation(said, losses)
    choice: ToolChoice | None = None
    if (raw := given(said.tool_choice)) is not None:
        choice, tools = read_choice(raw, tools, names, losses)
    request = Request(
        model=said.model,
        messages=messages,
        stream=said.stream or False,
        tools=tools,
        tool_choice=choice,
        parallel_tool_calls=said.parallel_tool_calls,
        max_tokens=said.max_output_tokens,
        temperature=said.temperature,
        top_p=said.top_p,
        top_k=said.top_k,
        presence_penalty=said.presence_penalty,
        frequency_penalty=said.frequency_penalty,
        seed=said.seed,
        stop=(said.stop,) if isinstance(said.stop, str) else tuple(said.stop or ()),
        output=read_format(said.text, losses),
        reasoning=read_reasoning(said.reasoning, losses),
        user=said.user,
        metadata=said.metadata or {},
        extra={name: bytes(raw) for name, raw in fields.items() if name not in _READ and given(raw) is not None},
    )
    return Decoded(request, tuple(losses))


_READ = frozenset(_Body.__struct_fields__) | READ_ELSEWHERE


def _conversation(said: _Body, losses: list[Loss]) -> tuple[tuple[Message, ...], tuple[Tool, ...], ToolNames]:
    """The messages, the tools (those declared inside the input come last), and how they are called."""
    instructions = [] if isinstance(said.instructions, str) else _kinds(said.instructions or (), "instructions")
    items = [] if isinstance(said.input, str) else _kinds(said.input or (), "input")
    tools = ToolReader(losses)
    tools.read(said.tools or (), "tools")
    for raw, kind, where in items:
        if kind.type == "additional_tools":
            tools.read(read(_tools, raw, where).tools or (), f"{where}.tools")
    names = ToolNames(tools.tools)
    reader = ItemReader(names, losses)
    if isinstance(said.instructions, str) and said.instructions:
        reader.messages.append(Message("system", (Text(said.instructions),)))
    for raw, kind, where in instructions + items:
        reader.read(raw, kind, where)
    if isinstance(said.input, str):
        reader.messages.append(Message("user", (Text(said.input),) if said.input else ()))
    return joined(reader.messages, ("assistant", "tool")), tools.tools, names


def _kinds(items: Sequence[msgspec.Raw], name: str) -> list[tuple[msgspec.Raw, Any, str]]:
    where = [f"{name}[{place}]" for place in range(len(items))]
    return [(raw, read(item_kind, raw, here), here) for raw, here in zip(items, where, strict=True)]


def encode_request(request: Request) -> Encoded:
    """The body that says a request; what it cannot say is reported."""
    losses: list[Loss] = []
    names = ToolNames(request.tools)
    writer = ItemWriter(names, losses)
    items = [
        item for place, message in enumerate(request.messages) for item in writer.write(message, f"messages[{place}]")
    ]
    if request.n is not None:
        losses.append(Loss("n", "one answer is all that can be asked for; left out"))
    said = {
        "model": request.model,
        "input": items,
        "stream": request.stream or None,
        "tools": list(write_tools(request.tools)) or None,
        "tool_choice": None if request.tool_choice is None else write_choice(request.tool_choice, names),
        "parallel_tool_calls": request.parallel_tool_calls,
        "max_output_tokens": request.max_tokens,
        "temperature": request.temperature,
        "top_p": request.top_p,
        "top_k": request.top_k,
        "presence_penalty": request.presence_penalty,
        "frequency_penalty": request.frequency_penalty,
        "seed": request.seed,
        "stop": list(request.stop) or None,
        "text": write_format(request.output),
        "reasoning": write_reasoning(request.reasoning, losses),
        "user": request.user,
        "metadata": request.metadata or None,
    }
    body: dict[str, Any] = {name: value for name, value in said.items() if value is not None}
    body |= {name: msgspec.Raw(value) for name, value in request.extra.items()}
    return Encoded(msgspec.json.encode(body), tuple(losses))
