"""Places of calls that arrived while the database could not be asked for one: they are given when it can be, in order of
arrival."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(slots=True)
class Place:
    """A call's place in its session."""

    session_id: str
    ordinal: int
    """Means nothing as long as it waits."""
    arrived: int | None = None
    """Orders it among the calls of this proxy that came without a place. None: it was given when the call came."""
    waits: bool = False
    """Whether the database has yet to say which one it is."""


class Waiting:
    """The places that are yet to be given, in order of arrival. Every method may be called from any thread."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._places: list[Place] = []
        self._arrived = 0

    def arrive(self, session_id: str) -> Place:
        """A place for a call that comes now."""
        with self._guard:
            place = Place(session_id, 0, self._arrived, waits=True)
            self._arrived += 1
            self._places.append(place)
        return place

    def restore(self, place: Place) -> None:
        """A place that an earlier process left waiting. Those come before any that arrive, in their own order."""
        arrived = place.arrived or 0
        with self._guard:
            self._places.append(place)
            self._places.sort(key=lambda one: one.arrived or 0)
            self._arrived = max(self._arrived, arrived + 1)

    def now(self) -> list[Place]:
        """Those that wait now, in order."""
        with self._guard:
            return list(self._places)

    def give(self, places: list[Place], first: Mapping[str, int]) -> None:
        """Gives the next ordinals of each session, from the first one on, to these: a beginning of what `now` said."""
        following = Counter(first)
        with self._guard:
            for place in places:
                place.ordinal, place.waits = following[place.session_id], False
                following[place.session_id] += 1
            self._places = [place for place in self._places if place.waits]
