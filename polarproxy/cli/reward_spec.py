"""Where a reward specification is written: the `[reward]` table of a file of its own, or of `polarproxy.toml`."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated, Any

import typer

from polarproxy.cli.config import DEFAULT_FILE, REWARD
from polarproxy.credit.spec import Spec, read_spec
from polarproxy.errors import BadReward

SpecFile = Annotated[
    Path | None,
    typer.Option("--reward", help="TOML file with a [reward] table; default: the one of polarproxy.toml."),
]


def spec_for_export(file: Path | None) -> Spec | None:
    """The specification that was named, or the one of `polarproxy.toml`; None: there is none. Raises `BadReward`."""
    if file is None and REWARD not in _default_tables():
        return None
    return load_spec(file)


def _default_tables() -> dict[str, Any]:
    try:
        return tomllib.loads(DEFAULT_FILE.read_text())
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError):
        # Settings are read, and complained of, by whoever needs them.
        return {}


def load_spec(file: Path | None) -> Spec:
    """The specification in force; raises `BadReward` when there is none, or it cannot be read."""
    path = DEFAULT_FILE if file is None else file
    try:
        values = tomllib.loads(path.read_text())
    except FileNotFoundError as error:
        raise BadReward(f"there is no {path}; name a file with a [reward] table with --reward") from error
    except OSError as error:
        raise BadReward(f"{path} cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadReward(f"{path} is not TOML: {error}") from error
    if REWARD not in values:
        raise BadReward(f"{path} has no [reward] table; docs/reference/rewards.md shows one")
    try:
        return read_spec(values[REWARD])
    except BadReward as error:
        raise BadReward(f"{path}: {error}") from error
