"""Settings from `polarproxy.toml`, the environment and flags; the later wins. A key nobody knows is an error."""

from __future__ import annotations

import difflib
import os
import tomllib
from dataclasses import dataclass, fields
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
_KINDS = get_type_hints(Settings)
_SECRET = ("upstream_key", "admin_key")
"""Settings whose values are not repeated."""


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

    Flags that are None were not given. Raises `BadSettings`, which says where a value that cannot be used stands.
    """
    path = DEFAULT_FILE if file is None else file
    written = from_file(path, may_lack=file is None)
    given = {name: _Given(value, f"{path}: {name}") for name, value in written.items()}
    for name, text in from_environment(os.environ if environment is None else environment).items():
        given[name] = _Given(text, f"environment variable {PREFIX}{name.upper()}")
    for name, value in flags.items():
        if value is not None:
            given[name] = _Given(value, f"--{name.replace('_', '-')}")
    values = {name: _typed(name, one) for name, one in given.items()}
    try:
        return Settings(**values)
    except BadSettings as error:
        for name, one in given.items():
            if _alone(name, values[name]) == str(error):
                # A place in a file ends with the name, with which the message begins.
                raise BadSettings(f"{one.where.removesuffix(f': {name}')}: {error}") from error
        # It is not one value that is wrong, but what they come to together.
        raise


@dataclass(frozen=True, slots=True)
class _Given:
    """A setting as somebody wrote it."""

    value: Any
    where: str


def _typed(name: str, given: _Given) -> Any:
    try:
        return msgspec.convert(given.value, _KINDS[name], strict=False)
    except msgspec.ValidationError as error:
        but = "" if name in _SECRET else f", not {given.value!r}"
        raise BadSettings(f"{given.where} must be {_in_words(_KINDS[name])}{but}") from error


def _in_words(kind: Any) -> str:
    if get_origin(kind) is Literal:
        return f"one of {', '.join(get_args(kind))}"
    named = next((known for known in get_args(kind) if known is not type(None)), kind)
    return {int: "a whole number", float: "a number", bool: "true or false", str: "text"}[named]


def _alone(name: str, value: Any) -> str | None:
    """What is wrong with a value whatever the others are; None: nothing."""
    try:
        Settings(**{name: value})
    except BadSettings as error:
        return str(error)
    return None
