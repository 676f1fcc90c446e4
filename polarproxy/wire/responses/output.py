"""The items of a reply, built piece by piece; the whole reply and the stream are both made here, so they tell one story.

Items end in their order, also where calls are sampled side by side: harnesses write their history as items end. So
while a call is open, nothing that came after it ends before it.
Source: OpenAI API reference, Responses, "Streaming events".
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import msgspec

from polarproxy.model import Loss
from polarproxy.wire.neutral.reply import ArgumentsPiece, TextPiece, ThinkingPiece, ToolBegin
from polarproxy.wire.neutral.seal import seal
from polarproxy.wire.responses import events
from polarproxy.wire.responses.calls import EMPTY_ACTION, action_of
from polarproxy.wire.responses.content import OutputText
from polarproxy.wire.responses.freeform import FreeformInput
from polarproxy.wire.responses.output_items import (
    CustomCall,
    FunctionCall,
    Item,
    ItemStatus,
    OutputMessage,
    Reasoning,
    ReasoningText,
    ShellCall,
)
from polarproxy.wire.responses.tools import ToolNames

if TYPE_CHECKING:
    from polarproxy.wire.neutral.request import Tool
    from polarproxy.wire.responses.events import Event


class _Open(Protocol):
    """An item that is not at its end yet."""

    @property
    def index(self) -> int: ...
    def begin(self) -> list[Event]: ...
    def more(self, text: str) -> list[Event]: ...
    def end(self, status: ItemStatus, losses: list[Loss]) -> tuple[Item, list[Event]]: ...


@dataclass(slots=True)
class _Thought:
    id: str
    index: int
    said: list[str] = field(default_factory=list)

    def begin(self) -> list[Event]:
        item = Reasoning(self.id, [], [], None)
        return [
            events.ItemAdded(output_index=self.index, item=item),
            events.PartAdded(item_id=self.id, output_index=self.index, part=ReasoningText("")),
        ]

    def more(self, text: str) -> list[Event]:
        self.said.append(text)
        return [events.ReasoningDelta(item_id=self.id, output_index=self.index, delta=text)]

    def end(self, status: ItemStatus, losses: list[Loss]) -> tuple[Item, list[Event]]:
        text = "".join(self.said)
        item = Reasoning(self.id, [], [ReasoningText(text)], seal(text))
        return item, [
            events.ReasoningDone(item_id=self.id, output_index=self.index, text=text),
            events.PartDone(item_id=self.id, output_index=self.index, part=ReasoningText(text)),
            events.ItemDone(output_index=self.index, item=item),
        ]


@dataclass(slots=True)
class _Said:
    id: str
    index: int
    said: list[str] = field(default_factory=list)

    def begin(self) -> list[Event]:
        return [
            events.ItemAdded(output_index=self.index, item=OutputMessage(self.id, "in_progress", [])),
            events.PartAdded(item_id=self.id, output_index=self.index, part=OutputText(text="", logprobs=[])),
        ]

    def more(self, text: str) -> list[Event]:
        self.said.append(text)
        return [events.TextDelta(item_id=self.id, output_index=self.index, delta=text)]

    def end(self, status: ItemStatus, losses: list[Loss]) -> tuple[Item, list[Event]]:
        part = OutputText(text="".join(self.said), logprobs=[])
        item = OutputMessage(self.id, status, [part])
        return item, [
            events.TextDone(item_id=self.id, output_index=self.index, text=part.text),
            events.PartDone(item_id=self.id, output_index=self.index, part=part),
            events.ItemDone(output_index=self.index, item=item),
        ]


@dataclass(slots=True)
class _Call:
    id: str
    index: int
    call: str
    tool: Tool
    said: list[str] = field(default_factory=list)

    def _item(self, status: ItemStatus, arguments: str) -> FunctionCall:
        return FunctionCall(self.id, status, self.call, _own_name(self.tool), arguments, _namespace(self.tool))

    def begin(self) -> list[Event]:
        return [events.ItemAdded(output_index=self.index, item=self._item("in_progress", ""))]

    def more(self, text: str) -> list[Event]:
        self.said.append(text)
        return [events.ArgumentsDelta(item_id=self.id, output_index=self.index, delta=text)]

    def end(self, status: ItemStatus, losses: list[Loss]) -> tuple[Item, list[Event]]:
        item = self._item(status, "".join(self.said))
        done = events.ArgumentsDone(item_id=self.id, output_index=self.index, name=item.name, arguments=item.arguments)
        return item, [done, events.ItemDone(output_index=self.index, item=item)]


@dataclass(slots=True)
class _Freeform:
    id: str
    index: int
    call: str
    tool: Tool
    input: FreeformInput = field(default_factory=FreeformInput)
    said: list[str] = field(default_factory=list)

    def _item(self, status: ItemStatus, input: str) -> CustomCall:
        return CustomCall(self.id, status, self.call, _own_name(self.tool), input, _namespace(self.tool))

    def begin(self) -> list[Event]:
        return [events.ItemAdded(output_index=self.index, item=self._item("in_progress", ""))]

    def more(self, text: str) -> list[Event]:
        return self._delta(self.input.feed(text))

    def _delta(self, known: str) -> list[Event]:
        self.said.append(known)
        return [events.InputDelta(item_id=self.id, output_index=self.index, delta=known)] if known else []

    def end(self, status: ItemStatus, losses: list[Loss]) -> tuple[Item, list[Event]]:
        rest, wrong = self.input.close()
        last = self._delta(rest)
        if wrong is not None:
            losses.append(Loss(f"output[{self.index}].input", wrong))
        item = self._item(status, "".join(self.said))
        done = events.InputDone(item_id=self.id, output_index=self.index, input=item.input)
        return item, [*last, done, events.ItemDone(output_index=self.index, item=item)]


@dataclass(slots=True)
class _Shell:
    id: str
    index: int
    call: str
    said: list[str] = field(default_factory=list)

    def begin(self) -> list[Event]:
        item = ShellCall(self.id, "in_progress", self.call, EMPTY_ACTION)
        return [events.ItemAdded(output_index=self.index, item=item)]

    def more(self, text: str) -> list[Event]:
        self.said.append(text)
        return []

    def end(self, status: ItemStatus, losses: list[Loss]) -> tuple[Item, list[Event]]:
        action, wrong = action_of("".join(self.said))
        if wrong is not None:
            losses.append(Loss(f"output[{self.index}].action", wrong))
        item = ShellCall(self.id, status, self.call, action)
        return item, [events.ItemDone(output_index=self.index, item=item)]


def _own_name(tool: Tool) -> str:
    return tool.own_name or tool.name


def _namespace(tool: Tool) -> str | msgspec.UnsetType:
    return msgspec.UNSET if tool.namespace is None else tool.namespace


class Output:
    """The items of one answer."""

    def __init__(self, id: str, tools: tuple[Tool, ...]) -> None:
        self.items: list[Item] = []
        """Those that are at their end, in order."""
        self._losses: list[Loss] = []
        self._id = id
        self._names = ToolNames(tools)
        self._open: list[_Open] = []
        self._calls: dict[int, _Open] = {}

    def add(self, piece: TextPiece | ThinkingPiece | ToolBegin | ArgumentsPiece) -> list[Event]:
        """The events that a piece is."""
        match piece:
            case TextPiece():
                return self._extend(_Said, "msg", piece.text)
            case ThinkingPiece():
                return self._extend(_Thought, "rs", piece.text)
            case ToolBegin():
                before = self._make_room()
                call = self._calls[piece.call] = self._begin_call(piece)
                self._open.append(call)
                return before + call.begin()
            case ArgumentsPiece():
                return self._calls[piece.call].more(piece.text)

    def end(self, *, whole: bool) -> list[Event]:
        """The events that end the items; of an answer that is not whole, the last item is incomplete."""
        last = len(self._open) - 1
        ends = [self._end(item, whole or place < last) for place, item in enumerate(self._open)]
        self._open = []
        return [event for events in ends for event in events]

    def take_losses(self) -> list[Loss]:
        """What could not be said since this was last asked."""
        taken, self._losses = self._losses, []
        return taken

    def _extend(self, kind: type[_Said | _Thought], prefix: str, text: str) -> list[Event]:
        last = self._open[-1] if self._open else None
        if isinstance(last, kind):
            return last.more(text)
        before = self._make_room()
        item = kind(self._next_id(prefix), self._next_index())
        self._open.append(item)
        return before + item.begin() + item.more(text)

    def _make_room(self) -> list[Event]:
        return [] if self._calls else self.end(whole=True)

    def _end(self, item: _Open, whole: bool) -> list[Event]:
        done, said = item.end("completed" if whole else "incomplete", self._losses)
        self.items.append(done)
        return said

    def _begin_call(self, piece: ToolBegin) -> _Open:
        tool, index = self._names.tool(piece.name), self._next_index()
        match tool.kind:
            case "custom":
                return _Freeform(self._next_id("ctc"), index, piece.id, tool)
            case "local_shell":
                return _Shell(self._next_id("lsh"), index, piece.id)
        return _Call(self._next_id("fc"), index, piece.id, tool)

    def _next_index(self) -> int:
        return len(self.items) + len(self._open)

    def _next_id(self, prefix: str) -> str:
        return f"{prefix}_{self._id}{self._next_index():02x}"
