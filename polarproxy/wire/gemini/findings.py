"""What a decoder finds beside what it understands: losses, and members that only survive within the dialect."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from polarproxy.model import Loss

if TYPE_CHECKING:
    from polarproxy.wire.gemini.members import Members


@dataclass(slots=True)
class Findings:
    """Filled while one body is read."""

    losses: list[Loss] = field(default_factory=list)
    extra: dict[str, bytes] = field(default_factory=dict)
    """JSON by path: `safetySettings`, `generationConfig.speechConfig`."""

    def lose(self, where: str, why: str) -> None:
        """Something was left out, or is not done as it was asked."""
        self.losses.append(Loss(where, why))

    def keep_rest(self, members: Members) -> None:
        """The members that nobody took survive a way back into this dialect."""
        self.extra.update((members.at(name), value) for name, value in members.rest())

    def lose_rest(self, members: Members) -> None:
        """The members that nobody took are left out."""
        for name, _ in members.rest():
            self.lose(members.at(name), "the engine has no place for it; left out")
