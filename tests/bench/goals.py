"""Goals of a benchmark, and its figures as JSON."""

from __future__ import annotations

import os
import platform
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from _typeshed import DataclassInstance


@dataclass(frozen=True)
class Goal:
    """A figure that is to be at least or at most so much."""

    name: str
    value: float
    limit: float
    at_least: bool

    @property
    def met(self) -> bool:
        return self.value >= self.limit if self.at_least else self.value <= self.limit

    def __str__(self) -> str:
        verdict = "[green]met[/]" if self.met else "[red]missed[/]"
        return f"{self.name}: {self.value:.2f}x, goal {'≥' if self.at_least else '≤'} {self.limit:g}x {verdict}"


def as_json(version: int, results: DataclassInstance, goals: Iterable[Goal]) -> dict[str, object]:
    """Every figure, the goals, and the machine that they were measured on."""
    return {
        "format_version": version,
        "machine": {"system": platform.platform(), "python": platform.python_version(), "cpus": os.cpu_count()},
        "goals": [asdict(goal) | {"met": goal.met} for goal in goals],
        **asdict(results),
    }
