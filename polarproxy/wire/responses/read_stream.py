"""Events of a stream read back into pieces, by the API's own description of them.

Events that say nothing of the answer, and those that are not known, are passed over. A text that did not come in deltas,
or not all of it, is taken from the item's end.
For clients and for the laws; the proxy itself only writes streams of this dialect.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from polarproxy.errors import BadReply, BadRequest
from polarproxy.wire.neutral.reading import read
from polarproxy.wire.neutral.reply import (
    ArgumentsPiece,
    Begin,
    Final,
    Finished,
    Piece,
    TextPiece,
    ThinkingPiece,
    ToolBegin,
)
from polarproxy.wire.neutral.request import Text, Thinking, ToolUse
from polarproxy.wire.responses.read_items import item_kind
from polarproxy.wire.responses.reading import NONE
from polarproxy.wire.responses.reply import response_decoder, said_by
from polarproxy.wire.responses.tools import ToolNames
from polarproxy.wire.sse import event_data

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_CALLS = ("function_call", "custom_tool_call", "local_shell_call")


class _Event(msgspec.Struct):
    type: str
    output_index: int = 0
    delta: msgspec.Raw = NONE
    item: msgspec.Raw = NONE
    response: msgspec.Raw = NONE


_event = msgspec.json.Decoder(_Event)
_text = msgspec.json.Decoder(str)


@dataclass(slots=True)
class _Open:
    """An item between its two events."""

    call: int | None
    """The number of the call that it is. None: it is none."""
    said: int = 0
    """How many characters of its text, or of its arguments, came in deltas."""


def decode_stream(events: Iterable[bytes]) -> list[Piece]:
    """The pieces of whole events; raises `BadReply`. A stream without its last event ends as if the engine gave up."""
    reader = _Reader()
    try:
        pieces = [piece for event in events for piece in reader.read(event)]
    except BadRequest as error:
        raise BadReply(str(error)) from error
    return pieces if reader.over else [*pieces, Finished("abort"), Final(None)]


class _Reader:
    def __init__(self) -> None:
        self.over = False
        self._names = ToolNames(())
        self._calls = 0
        self._open: dict[int, _Open] = {}

    def read(self, raw: bytes) -> Iterator[Piece]:
        data = event_data(raw)
        if data is None or self.over:
            return
        event = read(_event, data, "an event")
        match event.type:
            case "response.created":
                self._names = read(response_decoder, event.response, "response.created").names()
                yield Begin()
            case "response.output_item.added":
                yield from self._begin(event)
            case "response.output_text.delta" | "response.refusal.delta":
                yield TextPiece(self._delta(event))
            case "response.reasoning_text.delta":
                yield ThinkingPiece(self._delta(event))
            case "response.function_call_arguments.delta":
                yield ArgumentsPiece(self._call(event), self._delta(event))
            case "response.output_item.done":
                yield from self._rest(event)
            case "response.completed" | "response.incomplete" | "response.failed":
                response = read(response_decoder, event.response, event.type)
                self.over = True
                yield Finished(response.end(calls=self._calls > 0))
                yield Final(response.counted())

    def _begin(self, event: _Event) -> Iterator[Piece]:
        kind = read(item_kind, event.item, event.type)
        is_call = kind.type in _CALLS
        self._open[event.output_index] = _Open(self._calls if is_call else None)
        if is_call:
            for part in said_by(event.item, self._names, event.type):
                assert isinstance(part, ToolUse)
                yield ToolBegin(self._calls, part.id, part.name)
            self._calls += 1

    def _delta(self, event: _Event) -> str:
        delta = read(_text, event.delta, event.type)
        self._item(event).said += len(delta)
        return delta

    def _call(self, event: _Event) -> int:
        call = self._item(event).call
        if call is None:
            raise BadReply(f"{event.type}: item {event.output_index} is no call")
        return call

    def _item(self, event: _Event) -> _Open:
        item = self._open.get(event.output_index)
        if item is None:
            raise BadReply(f"{event.type}: item {event.output_index} was not added")
        return item

    def _rest(self, event: _Event) -> Iterator[Piece]:
        """What the item says that its deltas did not."""
        item = self._item(event)
        for part in said_by(event.item, self._names, event.type):
            whole = part.arguments if isinstance(part, ToolUse) else part.text
            rest, item.said = whole[item.said :], max(0, item.said - len(whole))
            match part:
                case Text() if rest:
                    yield TextPiece(rest)
                case Thinking() if rest:
                    yield ThinkingPiece(rest)
                case ToolUse() if rest:
                    yield ArgumentsPiece(self._call(event), rest)
