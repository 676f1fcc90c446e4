"""Dialogues as messages of OpenAI chat, which every trainer of conversations loads."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from polarproxy.wire.chat.messages_out import Writer
from polarproxy.wire.chat.request_tools import encode_tools

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from polarproxy.export.texts.dialogues import Line
    from polarproxy.wire.neutral.request import Tool

Json: TypeAlias = dict[str, Any]

REASONING = "reasoning_content"
"""What chat templates and trainers call an assistant's reasoning; the engine's API says `reasoning`."""


@dataclass(frozen=True, slots=True)
class Written:
    """Messages of chat, and how much of what was said they do not say."""

    messages: list[Json]
    losses: int


def write_messages(lines: Iterable[Line], *, weights: bool = True) -> Written:
    """The messages as the engine was told them, roles and all.

    With `weights`, each message of an assistant has a `weight`: 1 where the model sampled it there and it may be trained,
    0 where it is context.
    """
    writer = Writer(engine=True)
    messages: list[Json] = []
    for line in lines:
        for message in writer.write([line.message]):
            if "reasoning" in message:
                message[REASONING] = message.pop("reasoning")
            if weights and message["role"] == "assistant":
                message["weight"] = int(line.turn is not None and line.turn.trained)
            messages.append(message)
    return Written(messages, len(writer.losses))


def write_tools(tools: Sequence[Tool]) -> list[Json]:
    """The tools, with their schemas as the client spelled them, in one line."""
    flat = [
        tool if tool.parameters is None else replace(tool, parameters=bytes(one_line(tool.parameters)))
        for tool in tools
    ]
    return encode_tools(flat, engine=True)[0]


def one_line(json: bytes) -> msgspec.Raw:
    """A JSON value without line breaks, which can only stand between its parts; otherwise byte for byte."""
    return msgspec.Raw(json.replace(b"\n", b" ").replace(b"\r", b" "))
