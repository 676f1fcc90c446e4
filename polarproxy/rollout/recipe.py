"""Harness recipes: data that says how a harness is run, and how it learns where the model is."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import msgspec

from polarproxy.errors import BadSettings

_PACKAGE = Path(__file__).resolve().parent.parent


class _Environment(msgspec.Struct, forbid_unknown_fields=True):
    base_url: str
    api_key: str
    model: str


class _Recipe(msgspec.Struct, forbid_unknown_fields=True):
    format: int
    name: str
    version: str
    dialect: str
    command: list[str]
    environment: _Environment


@dataclass(frozen=True, slots=True)
class Recipe:
    """How one harness is run."""

    name: str
    dialect: str
    command: tuple[str, ...]
    """With `{python}`, `{folder}` and `{instruction}` still to be filled in."""
    folder: Path
    base_url_name: str
    """Name of the environment variable with the base URL; the next two likewise."""
    api_key_name: str
    model_name: str

    def command_line(self, instruction: str) -> list[str]:
        """The command for one task."""
        filled = {"python": sys.executable, "folder": str(self.folder), "instruction": instruction}
        return [part.format_map(filled) if part.startswith("{") else part for part in self.command]

    def environment(self, base_url: str, api_key: str, model: str) -> dict[str, str]:
        """The environment variables that point the harness at a model."""
        return {self.base_url_name: base_url, self.api_key_name: api_key, self.model_name: model}


def harnesses_folder() -> Path:
    """Inside an installed package, or beside it in a checkout."""
    installed = _PACKAGE / "_harnesses"
    return installed if installed.is_dir() else _PACKAGE.parent / "harnesses"


def load_recipe(name: str) -> Recipe:
    """The recipe of a harness that ships with polarproxy; raises `BadSettings` when there is none, or it is malformed."""
    path = harnesses_folder() / name / "recipe.toml"
    try:
        read = msgspec.toml.decode(path.read_bytes(), type=_Recipe)
    except OSError as error:
        raise BadSettings(f"there is no recipe for the harness {name!r}: {path} cannot be read") from error
    except msgspec.DecodeError as error:
        raise BadSettings(f"{path} is not a recipe: {error}") from error
    return Recipe(
        name=read.name,
        dialect=read.dialect,
        command=tuple(read.command),
        folder=path.parent,
        base_url_name=read.environment.base_url,
        api_key_name=read.environment.api_key,
        model_name=read.environment.model,
    )
