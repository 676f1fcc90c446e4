"""What of the records in a spool must be known without reading them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from polarproxy.store.places import Place
    from polarproxy.store.spool_records import Subject


@dataclass(frozen=True, slots=True)
class Held:
    """A record in the spool."""

    key: int
    """In the order in which they came."""
    file: int
    offset: int
    length: int
    about: Subject


@dataclass(frozen=True, slots=True)
class Refusal:
    """A record that the database will not take."""

    held: Held
    why: str


class Index:
    """The records that wait. Whoever changes it sees to it that nobody else does meanwhile."""

    def __init__(self) -> None:
        self._held: dict[int, Held] = {}
        self._sessions: Counter[str] = Counter()
        self._calls: Counter[str] = Counter()
        self._next: dict[str, int] = {}
        self._keys = 0
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._held)

    def add(self, file: int, offset: int, length: int, about: Subject) -> Held:
        """A record that came now."""
        held = Held(self._keys, file, offset, length, about)
        self._held[held.key] = held
        self._keys += 1
        self.bytes += length
        if about.session_id is not None:
            self._sessions[about.session_id] += 1
            if about.ordinal is not None:
                self._next[about.session_id] = max(self._next.get(about.session_id, 0), about.ordinal + 1)
        if about.call_id is not None:
            self._calls[about.call_id] += 1
        return held

    def remove(self, held: Held) -> None:
        """A record that waits no more."""
        del self._held[held.key]
        self.bytes -= held.length
        about = held.about
        if about.session_id is not None and _one_less(self._sessions, about.session_id):
            self._next.pop(about.session_id, None)
        if about.call_id is not None:
            _one_less(self._calls, about.call_id)

    def oldest(self, count: int) -> list[Held]:
        """The first records, in the order in which they came."""
        return list(islice(self._held.values(), count))

    def places(self) -> list[Place]:
        """Of the calls that came without one."""
        return [held.about.place for held in self._held.values() if held.about.place is not None]

    def holds_session(self, session_id: str) -> bool:
        """Whether the session, or a call of it, waits."""
        return session_id in self._sessions

    def holds_call(self, call_id: str) -> bool:
        """Whether the call, or a fact of it, waits."""
        return call_id in self._calls

    def next_ordinal(self, session_id: str) -> int:
        """The ordinal beyond those of all calls of a session that wait; 0 when none does."""
        return self._next.get(session_id, 0)


def _one_less(counts: Counter[str], key: str) -> bool:
    """Whether that was the last one."""
    counts[key] -= 1
    if counts[key]:
        return False
    del counts[key]
    return True
