"""Opening the store for a command."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from polarproxy.cli.config import load
from polarproxy.cli.output import print_json
from polarproxy.errors import NotFound
from polarproxy.store.database import open_database
from polarproxy.store.repository import Repository
from polarproxy.store.revisions import require_current

if TYPE_CHECKING:
    from collections.abc import Iterator

Db = Annotated[
    str | None, typer.Option("--db", help="Database URL; default: the `db` setting, else sqlite:///polar.db.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs instead of a table.")]
Merge = Annotated[
    Literal["prefix_merging", "per_request", "stitch"],
    typer.Option(
        help="How calls become rows: exact prefixes share one; one row a call; or Polar's stitching, which is marked"
        " where its rows are not what the engine saw."
    ),
]


@contextmanager
def narrowed(as_json: bool) -> Iterator[None]:
    """A list narrowed to what is not there is an empty one for programs, whose standard output stays JSON; people are told."""
    try:
        yield
    except NotFound:
        if as_json:
            print_json([])
        raise


def database_url(db: str | None) -> str:
    """The database in force for a command."""
    return load({"db": db}, None).db


@contextmanager
def open_repository(db: str | None) -> Iterator[Repository]:
    """The repository of an existing database with the current schema; raises `WrongDatabase`."""
    engine = open_database(database_url(db))
    try:
        require_current(engine)
        yield Repository(engine)
    finally:
        engine.dispose()
