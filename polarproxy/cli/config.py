"""Settings from `polarproxy.toml`, the environment and flags; the later wins. A key nobody knows is an error."""

from __future__ import annotations

import difflib
import os
import tomllib
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import msgspec

from polarproxy.errors import BadSettings
from polarproxy.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Mapping

_T = TypeVar("_T")

PREFIX = "POLARPROXY_"
DEFAULT_FILE = Path("polarproxy.toml")
REWARD = "reward"
"""A table of the file that holds no settings: what a reward is made of."""
_NOT_SETTINGS = ("POLARPROXY_TEST_", "POLARPROXY_CACHE")
_NAMES = tuple(field.name for field in fields(Settings))
_CHOICES = {name: get_args(kind) for name, kind in get_type_hints(Settings).items() if get_origin(kind) is Literal}


def _unknown(name: str, known: tuple[str, ...], where: str) -> BadSettings:
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.0)
    return BadSettings(f"{where}: there is no setting {name!r}; did you mean {near[0]!r}?")


def from_file(path: Path, *, may_lack: bool = False) -> dict[str, Any]:
    """The settings of a TOML file; raises `BadSettings` when it cannot be read. `may_lack`: none, when there is none."""
    try:
        values = tomllib.loads(path.read_text())
    except OSError as error:
        if may_lack and isinstance(error, FileNotFoundError):
            return {}
        raise BadSettings(f"{path} cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadSettings(f"{path} is not TOML: {error}") from error
    values.pop(REWARD, None)
    for name, value in values.items():
        if name not in _NAMES:
            if isinstance(value, dict):
                raise BadSettings(
                    f"{path}: there is no section [{name}]; settings stand at the top, before any section"
                )
            raise _unknown(name, _NAMES, str(path))
    if isinstance(values.get("upstream"), list):
        values["upstream"] = ",".join(map(str, values["upstream"]))
    return values


def from_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    """The settings among environment variables."""
    known = tuple(PREFIX + name.upper() for name in _NAMES)
    values = {}
    for name, value in environment.items():
        if not name.startswith(PREFIX) or name.startswith(_NOT_SETTINGS):
            continue
        if name not in known:
            raise _unknown(name, known, "environment")
        values[name.removeprefix(PREFIX).lower()] = value
    return values


def convert(value: Any, kind: type[_T], where: str) -> _T:
    """A value of the wanted type; text is read as the number it spells. Raises `BadSettings`."""
    try:
        return msgspec.convert(value, kind, strict=False)
    except msgspec.ValidationError as error:
        raise BadSettings(f"{where}: {error}") from error


def joined(values: list[str] | None) -> str | None:
    """A flag that was given several times, as one setting. None: it was not given."""
    return ",".join(values) if values else None


def load(flags: Mapping[str, Any], file: Path | None, environment: Mapping[str, str] | None = None) -> Settings:
    """The settings in force. `file` None: `polarproxy.toml` in the working directory, if there is one.

    Flags that are None were not given.
    """
    values = from_file(DEFAULT_FILE, may_lack=True) if file is None else from_file(file)
    values |= from_environment(os.environ if environment is None else environment)
    values |= {name: value for name, value in flags.items() if value is not None}
    for name, choices in _CHOICES.items():
        if name in values and values[name] not in choices:
            raise BadSettings(f"{name} must be one of {', '.join(choices)}, not {values[name]!r}")
    return convert(values, Settings, "settings")
