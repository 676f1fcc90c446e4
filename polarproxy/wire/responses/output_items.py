"""The items that a reply consists of, as they are sent.

Source: OpenAI API reference, Responses, `output`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec

if TYPE_CHECKING:
    from polarproxy.wire.responses.content import OutputText

ItemStatus: TypeAlias = Literal["in_progress", "completed", "incomplete"]


class ReasoningText(msgspec.Struct, tag_field="type", tag="reasoning_text"):
    """A part of a reasoning item."""

    text: str


class Reasoning(msgspec.Struct, tag_field="type", tag="reasoning"):
    """What the model thought. `encrypted_content` seals all of it; None: it is not all there yet."""

    id: str
    summary: list[str]
    content: list[ReasoningText]
    encrypted_content: str | None


class OutputMessage(msgspec.Struct, tag_field="type", tag="message"):
    """What the model said."""

    id: str
    status: ItemStatus
    content: list[OutputText]
    role: str = "assistant"


class FunctionCall(msgspec.Struct, tag_field="type", tag="function_call"):
    """A call of a function; the arguments are as sampled."""

    id: str
    status: ItemStatus
    call_id: str
    name: str
    arguments: str
    namespace: str | msgspec.UnsetType = msgspec.UNSET


class CustomCall(msgspec.Struct, tag_field="type", tag="custom_tool_call"):
    """A call of a freeform tool."""

    id: str
    status: ItemStatus
    call_id: str
    name: str
    input: str
    namespace: str | msgspec.UnsetType = msgspec.UNSET


class ShellCall(msgspec.Struct, tag_field="type", tag="local_shell_call"):
    """A call of the local shell."""

    id: str
    status: ItemStatus
    call_id: str
    action: msgspec.Raw


Item: TypeAlias = Reasoning | OutputMessage | FunctionCall | CustomCall | ShellCall
