"""Names that stay apart after they were bent to what an engine takes."""

from __future__ import annotations


class FreeNames:
    """Gives each name once; a name that is taken gets the next number that makes it free, `read_2`."""

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._numbers: dict[str, int] = {}
        """The last number that each name got, so that many equal ones are not counted through again."""

    def take(self, name: str) -> str:
        """The name, or with a number when it was given before."""
        free, number = name, self._numbers.get(name, 1)
        while free in self._taken:
            number += 1
            free = f"{name}_{number}"
        self._numbers[name] = number
        self._taken.add(free)
        return free
