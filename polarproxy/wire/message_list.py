"""The messages of a request of any dialect, each with the members that tell what it says, as the bytes that came in.

A request is mostly messages, so they are gone through once for all who want to know something of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from polarproxy.errors import UNREADABLE

if TYPE_CHECKING:
    from collections.abc import Sequence

NULL = msgspec.Raw(b"null")
_QUOTE = ord('"')


class Message(msgspec.Struct):
    """One message. What is no object, a text say, is all content."""

    role: msgspec.Raw = NULL
    content: msgspec.Raw = NULL
    parts: msgspec.Raw = NULL
    """What Gemini calls the content."""
    output: msgspec.Raw = NULL
    """What the result of a tool says (Responses)."""


@dataclass(frozen=True, slots=True)
class Ends:
    """A list of messages by its ends, which is what tells what a request looks like."""

    count: int = 0
    first: Message | None = None
    last: Message | None = None
    """None: the list is empty."""

    @classmethod
    def of(cls, messages: Sequence[Message]) -> Ends:
        """Of these messages."""
        return cls().more(messages)

    def more(self, messages: Sequence[Message]) -> Ends:
        """Of the list with these behind it."""
        if not messages:
            return self
        return Ends(self.count + len(messages), self.first or messages[0], messages[-1])

    def detached(self) -> Ends:
        """The same without the last one, holding on to no bytes of the request."""
        first = self.first
        if first is not None:
            first = Message(first.role.copy(), first.content.copy(), first.parts.copy(), first.output.copy())
        return Ends(self.count, first)


_one = msgspec.json.Decoder(Message)
_all = msgspec.json.Decoder(list[Message])
_list = msgspec.json.Decoder(list[msgspec.Raw])


def read_messages(raw: msgspec.Raw | None) -> list[Message]:
    """Of a list of them; a text alone is one. Empty when there is none, or it is something else."""
    if raw is None:
        return []
    if memoryview(raw)[0] == _QUOTE:
        return [Message(content=raw)]
    try:
        return _all.decode(raw)
    except UNREADABLE:
        return _each(raw)


def _each(raw: msgspec.Raw) -> list[Message]:
    try:
        return [_read(one) for one in _list.decode(raw)]
    except UNREADABLE:
        return []


def _read(raw: msgspec.Raw) -> Message:
    try:
        return _one.decode(raw)
    except UNREADABLE:
        return Message(content=raw)
