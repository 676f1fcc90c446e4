"""The next request of a conversation, read from where the one before it ended.

A harness sends its whole history with every call. What was gone through once, byte by byte, is compared with the request
before it, which takes a hundredth of the time, so that a long conversation costs little more than a short one.

What stood up to the last message was the beginning of a JSON object, in the middle of its list of messages. The bytes are the
same, so whatever follows is read as it would be there.
"""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from polarproxy.errors import UNREADABLE
from polarproxy.wire.message_list import Ends

if TYPE_CHECKING:
    from polarproxy.wire.chat.fields import Fields

_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])
_LONG = 4096
"""A shorter body is read sooner than compared."""
_MESSAGES = re.compile(rb'"messages"[ \t\r\n]*:[ \t\r\n]*\[')
_SPACE = b" \t\r\n"
_MARK = secrets.token_hex(8)
"""A name of no member: under its own, a second list of messages would take the place of the rest of the first."""
_REST = b'{"%b":[' % _MARK.encode()


@dataclass(frozen=True, slots=True)
class Opened:
    """The members of a request body, and what of its messages is to be read."""

    fields: Fields
    more: msgspec.Raw | None
    """A JSON list of the messages that are not known yet, or whatever stands in its place. None: nothing does."""
    ends: Ends = field(default_factory=Ends)
    """Of the messages before."""
    media: bool = False
    """Whether any of them holds media."""
    begun: Begun | None = None
    """What it goes on from. None: nothing."""
    closed: int = 0
    """Where the list of messages ends in a body that goes on from another."""


@dataclass(frozen=True, slots=True)
class Begun:
    """A request body up to its last message."""

    body: bytes
    """The whole of it."""
    opened: int
    """Behind the bracket that opens the list of messages."""
    closed: int
    """Before the bracket that closes it."""
    before: Fields
    """The members before the messages."""
    ends: Ends
    media: bool

    @classmethod
    def of(cls, body: bytes, opened: Opened, ends: Ends, *, media: bool) -> Begun | None:
        """Of a body that was read. None: it is short, has no messages, or is not written as most are."""
        if len(body) < _LONG or not ends.count:
            return None
        if (begun := opened.begun) is not None:
            return cls(body, begun.opened, opened.closed, begun.before, ends.detached(), media)
        named = _MESSAGES.search(body)
        if named is None:
            return None
        start = named.end()
        try:
            before = _fields.decode(body[:start] + b"]}")
        except UNREADABLE:
            return None
        messages = bytes(opened.fields["messages"])
        if list(before)[-1] != "messages" or not body.startswith(messages, start - 1):
            return None
        del before["messages"]
        return cls(body, start, start + len(messages) - 2, before, ends.detached(), media)

    def go_on(self, body: bytes) -> Opened | None:
        """The members of a body that begins with all of this one's messages. None: it does not, or cannot be read."""
        closed = self.closed
        if not body.startswith(memoryview(self.body)[:closed]):
            return None
        comma = body.startswith(b",", closed)
        rest = _REST + body[closed + comma :]
        try:
            behind = _fields.decode(rest)
        except UNREADABLE:
            return None
        more = behind.pop(_MARK)
        said = bytes(memoryview(more)[1:-1])
        # A comma and a message, or neither.
        if "messages" in behind or comma != bool(said.strip(_SPACE)):
            return None
        end = closed + comma + len(said) + 1
        fields = self.before | {"messages": msgspec.Raw(body[self.opened - 1 : end])} | behind
        return Opened(fields, more, self.ends, self.media, self, closed + comma + len(said))
