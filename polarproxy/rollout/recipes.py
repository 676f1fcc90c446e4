"""Finding recipes: those that ship with polarproxy, and a folder of the user's own, which come before them."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from pathlib import Path

from polarproxy.errors import BadSettings
from polarproxy.rollout.filling import check_recipe
from polarproxy.trajectory.recipes import Recipe, read_recipe

_PACKAGE = Path(__file__).resolve().parent.parent
RECIPE_FILE = "recipe.toml"


@dataclass(frozen=True, slots=True)
class Harness:
    """A recipe, and where it was found."""

    recipe: Recipe
    file: Path

    @property
    def folder(self) -> Path:
        """Where the files lie that come with it."""
        return self.file.parent


def harnesses_folder() -> Path:
    """Inside an installed package, or beside it in a checkout."""
    installed = _PACKAGE / "_harnesses"
    return installed if installed.is_dir() else _PACKAGE.parent / "harnesses"


def find_harnesses(own: Path | None = None) -> dict[str, Harness]:
    """All of them by name, sorted. `own`: a folder whose recipes take the place of ours of the same name.

    Raises `BadSettings` for a recipe that is malformed, for two of one name in a folder, and when `own` is no folder.
    """
    if own is not None and not own.is_dir():
        raise BadSettings(f"{own} is no folder of recipes")
    found = _in_folder(harnesses_folder()) | ({} if own is None else _in_folder(own))
    return dict(sorted(found.items()))


def named(known: dict[str, Harness], name: str) -> Harness:
    """The one of that name; raises `BadSettings` when there is none, which names the nearest."""
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.0)
        raise BadSettings(f"there is no recipe for the harness {name!r}; did you mean {near[0]!r}?")
    return known[name]


def _in_folder(folder: Path) -> dict[str, Harness]:
    """`NAME.toml`, and `NAME/recipe.toml` for one that has files of its own."""
    found: dict[str, Harness] = {}
    for file in sorted([*folder.glob("*.toml"), *folder.glob(f"*/{RECIPE_FILE}")]):
        recipe = _read(file)
        if recipe.name in found:
            raise BadSettings(f"{file} and {found[recipe.name].file} are both for the harness {recipe.name!r}")
        found[recipe.name] = Harness(recipe, file)
    return found


def _read(file: Path) -> Recipe:
    recipe = read_recipe(file.read_bytes(), str(file))
    named = file.parent.name if file.name == RECIPE_FILE else file.stem
    if recipe.name != named:
        raise BadSettings(f"{file} is for the harness {recipe.name!r}; its name must be the file's, {named!r}")
    check_recipe(recipe, str(file))
    return recipe
