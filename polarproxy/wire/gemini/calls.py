"""Which result answers which call. Ids are optional in this API; the engine needs them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class _Open:
    """A call that no result answered yet."""

    id: str
    name: str
    made: bool
    """The id is ours, since the client gave none."""


class Calls:
    """The calls of one conversation so far.

    Ids that are made follow from the position in the conversation alone, so a longer conversation repeats them.
    """

    def __init__(self) -> None:
        self._known: set[str] = set()
        self._open: list[_Open] = []
        self._calls = 0
        self._orphans = 0

    def new_turn(self) -> None:
        """The model speaks again: what was not answered by now is answered no more."""
        self._open = []

    def call(self, given: str, name: str) -> str:
        """The id of a call; `given` is empty when the client gave none."""
        call_id = given or f"call_{self._calls}"
        self._calls += 1
        self._known.add(call_id)
        self._open.append(_Open(call_id, name, made=not given))
        return call_id

    def result(self, given: str, name: str | None) -> tuple[str, bool]:
        """The id of the call that a result answers, and whether there is such a call."""
        if given in self._known:
            self._open = [call for call in self._open if call.id != given]
            return given, True
        for place, call in enumerate(self._open):
            if call.name == name and (call.made or not given):
                del self._open[place]
                return call.id, True
        if given:
            return given, False
        self._orphans += 1
        return f"orphan_{self._orphans - 1}", False
