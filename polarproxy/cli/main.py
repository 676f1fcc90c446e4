"""The `polarproxy` command. Exit code 0: done; 1: the work found something wrong; 2: wrong use."""

from __future__ import annotations

import sys
from typing import Annotated

import typer
from rich.text import Text
from sqlalchemy.exc import DBAPIError

from polarproxy import __version__
from polarproxy.cli import calls, db, reward, sessions, trajectories, upstreams
from polarproxy.cli.admin_key import admin_key
from polarproxy.cli.demo import demo
from polarproxy.cli.doctor import doctor
from polarproxy.cli.export import export
from polarproxy.cli.output import errors
from polarproxy.cli.serve import serve
from polarproxy.cli.verify import verify
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

app = typer.Typer(
    name="polarproxy",
    help="A transparent LLM API proxy that turns any agent harness into token-faithful training data.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """A transparent LLM API proxy that turns any agent harness into token-faithful training data."""


app.command()(serve)
app.command()(demo)
app.command()(export)
app.command()(verify)
app.command()(doctor)
app.command()(admin_key)
app.add_typer(sessions.app, name="sessions")
app.add_typer(calls.app, name="calls")
app.add_typer(trajectories.app, name="trajectories")
app.add_typer(reward.app, name="reward")
app.add_typer(db.app, name="db")
app.add_typer(upstreams.app, name="upstreams")

_WRONG_USE = (BadSettings, BadSpool, WrongDatabase, NotFound, BadReward, BadExport, BadArchive, InvalidValue)


def run() -> None:
    """Runs the command line; errors raised on purpose are printed as a sentence."""
    try:
        app()
    except PolarproxyError as error:
        _complain(str(error))
        sys.exit(2 if isinstance(error, _WRONG_USE) else 1)
    except DBAPIError as error:
        _complain(f"the database refused: {error.orig}")
        sys.exit(1)
    except OSError as error:
        if error.filename is None:
            raise
        # A file that was named on the command line, or stands beside one.
        _complain(f"{error.filename}: {error.strerror}")
        sys.exit(2)


def _complain(text: str) -> None:
    errors.print(Text("error: ", style="bold red") + Text(text, style="none"))
