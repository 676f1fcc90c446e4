"""The events of a stream, by the names and members of the API.

Source: OpenAI API reference, Responses, "Streaming events". The encoder numbers them when they are sent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from polarproxy.wire.responses.content import OutputText
    from polarproxy.wire.responses.output_items import Item, ReasoningText
    from polarproxy.wire.responses.response import Response


class Event(msgspec.Struct, tag_field="type", kw_only=True):
    """Any event."""

    sequence_number: int = 0


class OfResponse(Event, kw_only=True):
    """An event about the whole response."""

    response: Response


class Created(OfResponse, tag="response.created"):
    pass


class InProgress(OfResponse, tag="response.in_progress"):
    pass


class Completed(OfResponse, tag="response.completed"):
    pass


class IncompleteResponse(OfResponse, tag="response.incomplete"):
    pass


class Failed(OfResponse, tag="response.failed"):
    pass


class OfItem(Event, kw_only=True):
    """An event about a whole item."""

    output_index: int
    item: Item


class ItemAdded(OfItem, tag="response.output_item.added"):
    pass


class ItemDone(OfItem, tag="response.output_item.done"):
    pass


class InItem(Event, kw_only=True):
    """An event inside an item."""

    item_id: str
    output_index: int


class PartAdded(InItem, tag="response.content_part.added", kw_only=True):
    content_index: int = 0
    part: OutputText | ReasoningText


class PartDone(InItem, tag="response.content_part.done", kw_only=True):
    content_index: int = 0
    part: OutputText | ReasoningText


class TextDelta(InItem, tag="response.output_text.delta", kw_only=True):
    content_index: int = 0
    delta: str
    logprobs: list[str] = []


class TextDone(InItem, tag="response.output_text.done", kw_only=True):
    content_index: int = 0
    text: str
    logprobs: list[str] = []


class ReasoningDelta(InItem, tag="response.reasoning_text.delta", kw_only=True):
    content_index: int = 0
    delta: str


class ReasoningDone(InItem, tag="response.reasoning_text.done", kw_only=True):
    content_index: int = 0
    text: str


class ArgumentsDelta(InItem, tag="response.function_call_arguments.delta", kw_only=True):
    delta: str


class ArgumentsDone(InItem, tag="response.function_call_arguments.done", kw_only=True):
    name: str
    arguments: str


class InputDelta(InItem, tag="response.custom_tool_call_input.delta", kw_only=True):
    delta: str


class InputDone(InItem, tag="response.custom_tool_call_input.done", kw_only=True):
    input: str
