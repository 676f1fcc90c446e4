"""Sessions of clients that name none: each root conversation is a session of its own.

A request that repeats the messages of an earlier one and the reply to it continues that conversation. Where that could be
several conversations a new session is made: one that is split can be seen, one that is mixed cannot. This memory is
bounded and lives as long as the process: after a restart a conversation that goes on becomes a new session, and its
calls are kept all the same.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from polarproxy.errors import UNREADABLE
from polarproxy.store.ids import new_id
from polarproxy.wire.conversation import prefix_digests, reply_digest

if TYPE_CHECKING:
    from collections.abc import Sequence

_KEPT = 50_000
_PER_PREFIX = 64


@dataclass(frozen=True, slots=True)
class Place:
    """Where a request stands among the conversations."""

    session_id: str
    digest: bytes | None
    """Digest of all its messages. None: they cannot be read, and nothing can continue it."""


@dataclass(frozen=True, slots=True)
class _Answered:
    session_id: str
    reply: bytes | None


class Roots:
    """Recent requests by their messages, with what was answered."""

    def __init__(self) -> None:
        self._answered: OrderedDict[bytes, list[_Answered]] = OrderedDict()

    def place(self, messages: Sequence[bytes]) -> Place:
        """The session that the messages continue, or a new one."""
        try:
            digests = prefix_digests(messages)
        except UNREADABLE:
            digests = []
        for count in range(len(digests) - 1, 0, -1):
            answered = self._answered.get(digests[count - 1])
            if answered:
                said = reply_digest(messages[count])
                same = {entry.session_id for entry in answered if entry.reply == said}
                same = same or {entry.session_id for entry in answered}
                if len(same) == 1:
                    return Place(same.pop(), digests[-1])
                # Several conversations have come to this point and the reply does not tell which one goes on.
                break
        return Place(new_id("r"), digests[-1] if digests else None)

    def answered(self, place: Place, message: bytes | None) -> None:
        """Remembers that the request at `place` was answered with this assistant message; once for each choice of n."""
        if place.digest is None:
            return
        entries = self._answered.setdefault(place.digest, [])
        entries.append(_Answered(place.session_id, None if message is None else reply_digest(message)))
        del entries[:-_PER_PREFIX]
        self._answered.move_to_end(place.digest)
        while len(self._answered) > _KEPT:
            self._answered.popitem(last=False)
