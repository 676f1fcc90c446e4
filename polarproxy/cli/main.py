"""The `polarproxy` command. Exit code 0: done; 1: the work found something wrong; 2: wrong use.

Only the module of the command that was asked for is imported: a listing must not wait for what only a proxy needs.
"""

from __future__ import annotations

import gc
import sys
from errno import ENOSPC
from importlib import import_module
from io import TextIOWrapper
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from polarproxy import __version__
from polarproxy.cli.output import errors
from polarproxy.errors import (
    BadArchive,
    BadExport,
    BadReward,
    BadSettings,
    BadSpool,
    InvalidValue,
    NotFound,
    PolarproxyError,
    WrongDatabase,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy.exc import DBAPIError

COMMANDS = {
    "serve": "serve",
    "demo": "demo",
    "export": "export",
    "generate": "generate",
    "push": "push",
    "verify": "verify",
    "doctor": "doctor",
    "admin-key": "admin_key",
}
"""Commands by the module of `polarproxy.cli` that holds the function of the same name."""
GROUPS = ("sessions", "calls", "trajectories", "reward", "credit", "db", "upstreams", "harness")
"""Groups of commands, each the `app` of the module of its name."""

_HELP = "A transparent LLM API proxy that turns any agent harness into token-faithful training data."
_INTERRUPTED = 130
_COLLECTING = 20_000, 20, 50
"""Garbage of ours is counted by references nearly always; circles may wait."""
_WRONG_USE = (BadSettings, BadSpool, WrongDatabase, NotFound, BadReward, BadExport, BadArchive, InvalidValue)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(__version__)
        raise typer.Exit


def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """A transparent LLM API proxy that turns any agent harness into token-faithful training data."""


def build(arguments: Sequence[str]) -> typer.Typer:
    """The command line as far as these arguments need it: one command, or all of them for a question about them."""
    app = typer.Typer(
        name="polarproxy", help=_HELP, no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False
    )
    app.callback()(root)
    known: tuple[str, ...] = () if "--version" in arguments[:1] else (*COMMANDS, *GROUPS)
    asked = next((word for word in arguments if not word.startswith("-")), None)
    for name in known if asked not in known else (asked,):
        if name in GROUPS:
            app.add_typer(import_module(f"polarproxy.cli.{name}").app, name=name)
        else:
            module = COMMANDS[name]
            app.command()(getattr(import_module(f"polarproxy.cli.{module}"), module))
    return app


def run() -> None:
    """Runs the command line; errors raised on purpose are printed as a sentence."""
    # A character that the terminal's encoding lacks is spelled out, and costs nobody the rest of the text.
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        command = build(sys.argv[1:])
        # What was imported stays, and to go through it whenever a session was read would double what a listing costs.
        gc.freeze()
        gc.set_threshold(*_COLLECTING)
        command()
    except SystemExit:
        # The usual end, for which the classes below need not be imported.
        raise
    except KeyboardInterrupt:
        # While modules are still being imported; later the command line itself takes it.
        sys.exit(_INTERRUPTED)
    except PolarproxyError as error:
        _complain(str(error))
        sys.exit(2 if isinstance(error, _WRONG_USE) else 1)
    except _refusals() as error:
        _complain(f"the database refused: {error.orig}")
        sys.exit(1)
    except OSError as error:
        if error.errno == ENOSPC:
            _complain(f"{error.filename or 'what was to be printed or written'}: {error.strerror}")
            sys.exit(1)
        if error.filename is None:
            raise
        # A file that was named on the command line, or stands beside one.
        _complain(f"{error.filename}: {error.strerror}")
        sys.exit(2)


def _refusals() -> type[DBAPIError]:
    """What a database says no with; asked only once something was raised."""
    return import_module("sqlalchemy.exc").DBAPIError  # type: ignore[no-any-return]


def _complain(text: str) -> None:
    errors.print(Text("error: ", style="bold red") + Text(text, style="none"))
