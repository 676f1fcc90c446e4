"""The recipes that ship with polarproxy, as far as they tell a harness's calls apart."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polarproxy.rollout.recipe import harnesses_folder
from polarproxy.trajectory.branches import build_trajectory
from polarproxy.trajectory.kinds import judge
from polarproxy.trajectory.recipes import read_recipe

if TYPE_CHECKING:
    from collections.abc import Iterable

    from polarproxy.model import CapturedCall, Session
    from polarproxy.trajectory.branches import Trajectory
    from polarproxy.trajectory.kinds import Judged
    from polarproxy.trajectory.recipes import Recipe


def known_recipes() -> tuple[Recipe, ...]:
    """All of them by name; raises `BadSettings` for one that is malformed."""
    files = sorted(harnesses_folder().glob("*.toml"))
    return tuple(read_recipe(file.read_bytes(), str(file)) for file in files)


def rebuild(session: Session, calls: Iterable[CapturedCall]) -> tuple[Judged, Trajectory]:
    """The calls of a session with their kinds, and its trajectory."""
    judged = judge(calls, known_recipes(), session.harness)
    return judged, build_trajectory(session.session_id, judged.calls)
