"""Which result answers which call. Ids are optional in this API; the engine needs them."""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass, field


@dataclass(slots=True, eq=False)
class _Open:
    """A call of the last turn."""

    id: str
    answered: bool = False


@dataclass(frozen=True, slots=True)
class _Named:
    """The calls of one tool in the last turn, in order; those that were answered out of it are passed over later."""

    every: deque[_Open] = field(default_factory=deque)
    made: deque[_Open] = field(default_factory=deque)
    """Those whose id is ours, since the client gave none."""


class Calls:
    """The calls of one conversation so far.

    Ids that are made follow from the position in the conversation alone, so a longer conversation repeats them.
    """

    def __init__(self) -> None:
        self._known: set[str] = set()
        self._by_id: defaultdict[str, list[_Open]] = defaultdict(list)
        self._by_name: defaultdict[str | None, _Named] = defaultdict(_Named)
        self._calls = 0
        self._orphans = 0

    def new_turn(self) -> None:
        """The model speaks again: what was not answered by now is answered no more."""
        self._by_id.clear()
        self._by_name.clear()

    def call(self, given: str, name: str) -> str:
        """The id of a call; `given` is empty when the client gave none."""
        call = _Open(given or f"call_{self._calls}")
        self._calls += 1
        self._known.add(call.id)
        self._by_id[call.id].append(call)
        self._by_name[name].every.append(call)
        if not given:
            self._by_name[name].made.append(call)
        return call.id

    def result(self, given: str, name: str | None) -> tuple[str, bool]:
        """The id of the call that a result answers, and whether there is such a call."""
        if given in self._known:
            for call in self._by_id.pop(given, ()):
                call.answered = True
            return given, True
        waiting = self._by_name[name].made if given else self._by_name[name].every
        while waiting:
            call = waiting.popleft()
            if not call.answered:
                call.answered = True
                return call.id, True
        if given:
            return given, False
        self._orphans += 1
        return f"orphan_{self._orphans - 1}", False
