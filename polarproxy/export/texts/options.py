"""What formats made of conversations can be told beside what every format is told."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal

from polarproxy.errors import BadExport

Pairs = Literal["best_worst", "all"]


@dataclass(frozen=True, slots=True)
class TextOptions:
    """None of these are for formats made of token rows."""

    best_of: int | None = None
    """Only the sessions with the highest rewards of each group, so many. None: all."""
    dedup: bool = False
    """Whether a conversation that was written already is left out."""
    margin: float | None = None
    """By how much the reward of what is chosen must be higher. None: by anything."""
    pairs: Pairs | None = None
    """Which pairs of a group: its best and its worst session, or every two whose rewards differ. None: `best_worst`."""

    def __post_init__(self) -> None:
        if self.best_of is not None and self.best_of < 1:
            raise BadExport(f"--best-of keeps at least one session of a group; it cannot be {self.best_of}")
        if self.margin is not None and not 0 <= self.margin < float("inf"):
            raise BadExport(f"--margin is a difference of rewards, at least 0; it cannot be {self.margin}")

    def check(self, takes: tuple[str, ...], name: str) -> None:
        """Raises `BadExport` for an option that was given and that the format of this name does not take."""
        for own in fields(self):
            if getattr(self, own.name) != own.default and own.name not in takes:
                flags = ", ".join(f"--{one.replace('_', '-')}" for one in takes)
                hint = f"it takes {flags}" if takes else "it takes none of the options of conversations"
                raise BadExport(f"--{own.name.replace('_', '-')} does not fit the format {name}; {hint}")
