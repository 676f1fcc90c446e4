"""The recipes that ship with polarproxy, as far as they tell a harness's calls apart."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polarproxy.rollout.recipe import harnesses_folder
from polarproxy.trajectory.merging import MERGES
from polarproxy.trajectory.rebuilt import rebuild
from polarproxy.trajectory.recipes import read_recipe

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from polarproxy.model import CapturedCall, Session
    from polarproxy.trajectory.rebuilt import Rebuilt
    from polarproxy.trajectory.recipes import Recipe


def known_recipes() -> tuple[Recipe, ...]:
    """All of them by name; raises `BadSettings` for one that is malformed."""
    files = sorted(harnesses_folder().glob("*.toml"))
    return tuple(read_recipe(file.read_bytes(), str(file)) for file in files)


def rebuilt(
    session: Session,
    calls: Iterable[CapturedCall],
    recipes: Sequence[Recipe] | None = None,
    merge: str = MERGES[0][0],
) -> Rebuilt:
    """A stored session, rebuilt. `recipes`: None reads them; `merge` is the name of a rule."""
    known = known_recipes() if recipes is None else recipes
    return rebuild(session.session_id, calls, known, session.harness, dict(MERGES)[merge])
