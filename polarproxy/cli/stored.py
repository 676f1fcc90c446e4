"""Rows of a store for Python: what `polarproxy export` would write, without the file."""

from __future__ import annotations

from functools import partial

from polarproxy.cli.recipes import known_recipes
from polarproxy.cli.transcripts import Transcriber
from polarproxy.errors import WrongDatabase
from polarproxy.export.collect import Collection
from polarproxy.export.options import Options
from polarproxy.export.sources import Stored
from polarproxy.store.database import open_database
from polarproxy.store.repository import Repository
from polarproxy.store.revisions import require_current


def collect(url: str, options: Options) -> Collection:
    """The rows of a store that is opened for them; raises `WrongDatabase`, and `BadExport` as an export does."""
    engine = open_database(url)
    try:
        require_current(engine)
    except WrongDatabase:
        engine.dispose()
        raise
    repository = Repository(engine)
    return Collection(repository, options, known_recipes(), transcribe=Transcriber(repository).transcribe)


def stored(url: str, options: Options | None = None) -> Stored:
    """A source for `GRPODataset`: the sessions that are in the store now, read anew in each epoch."""
    return Stored(partial(collect, url, Options() if options is None else options))
