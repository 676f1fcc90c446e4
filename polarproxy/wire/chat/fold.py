"""The events of a chat stream folded into the message of a whole reply (law 8)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from polarproxy.wire.sse import DONE, event_data

if TYPE_CHECKING:
    from collections.abc import Iterable


class _Function(msgspec.Struct):
    name: str | None = None
    arguments: str | None = None


class _ToolDelta(msgspec.Struct):
    index: int = 0
    id: str | None = None
    function: _Function | None = None


class _Delta(msgspec.Struct):
    content: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[_ToolDelta] | None = None


class _Choice(msgspec.Struct):
    index: int = 0
    delta: _Delta | None = None


class _Chunk(msgspec.Struct):
    choices: list[_Choice] = []


_chunk = msgspec.json.Decoder(_Chunk)

_REASONING = ("reasoning", "reasoning_content")


@dataclass(slots=True)
class _ToolCall:
    id: str | None = None
    name: str = ""
    arguments: str = ""


@dataclass(slots=True)
class _Message:
    content: list[str] = field(default_factory=list)
    reasoning: dict[str, str] = field(default_factory=dict)
    """By the name that the engine gives it."""
    tool_calls: dict[int, _ToolCall] = field(default_factory=dict)


def fold_message(events: Iterable[bytes]) -> bytes:
    """What choice 0 of a stream says, as the JSON of an assistant message; events that are no chunks are passed over."""
    message = _Message()
    for event in events:
        data = event_data(event)
        if data is None or data == DONE:
            continue
        try:
            chunk = _chunk.decode(data)
        except msgspec.DecodeError:
            continue
        for choice in chunk.choices:
            if choice.index == 0 and choice.delta is not None:
                _add(message, choice.delta)
    calls = [
        {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
        for _, call in sorted(message.tool_calls.items())
    ]
    text = "".join(message.content)
    tools = {"tool_calls": calls} if calls else {}
    return msgspec.json.encode({"role": "assistant", "content": text, **message.reasoning, **tools})


def _add(message: _Message, delta: _Delta) -> None:
    if delta.content:
        message.content.append(delta.content)
    for name in _REASONING:
        if thought := getattr(delta, name):
            message.reasoning[name] = message.reasoning.get(name, "") + thought
    for part in delta.tool_calls or ():
        call = message.tool_calls.setdefault(part.index, _ToolCall())
        call.id = part.id or call.id
        if part.function is not None:
            call.name += part.function.name or ""
            call.arguments += part.function.arguments or ""
