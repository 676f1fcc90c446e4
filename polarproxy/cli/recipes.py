"""The recipes in force: those that ship with polarproxy, and the user's own before them (the setting `harnesses`)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from polarproxy.cli.config import load
from polarproxy.rollout.recipes import find_harnesses
from polarproxy.trajectory.merging import MERGES
from polarproxy.trajectory.rebuilt import rebuild

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from polarproxy.model import CapturedCall, Session
    from polarproxy.rollout.recipes import Harness
    from polarproxy.trajectory.rebuilt import Rebuilt
    from polarproxy.trajectory.recipes import Recipe


def known_harnesses(own: str | None = None) -> dict[str, Harness]:
    """All of them by name; raises `BadSettings` for a recipe that is malformed. `own` None: what the settings say."""
    folder = load({"harnesses": own}, None).harnesses
    return find_harnesses(None if folder is None else Path(folder))


def known_recipes() -> tuple[Recipe, ...]:
    """Their recipes; raises `BadSettings` for one that is malformed."""
    return tuple(harness.recipe for harness in known_harnesses().values())


def harness_cache() -> Path:
    """Where harnesses are installed."""
    cache = os.environ.get("POLARPROXY_CACHE") or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "polarproxy")
    return Path(cache).expanduser() / "harnesses"


def rebuilt(
    session: Session,
    calls: Iterable[CapturedCall],
    recipes: Sequence[Recipe] | None = None,
    merge: str = MERGES[0][0],
) -> Rebuilt:
    """A stored session, rebuilt. `recipes`: None reads them; `merge` is the name of a rule."""
    known = known_recipes() if recipes is None else recipes
    return rebuild(session.session_id, calls, known, session.harness, dict(MERGES)[merge])
