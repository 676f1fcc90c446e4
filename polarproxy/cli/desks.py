"""Where batches are taken, put together of what only the command line knows."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from polarproxy.export.desk import Desk


def desk(engine: Engine) -> Desk:
    """The desk of a database. Imported late: a proxy whose batches nobody takes needs none of it."""
    from polarproxy.cli.recipes import known_recipes
    from polarproxy.cli.transcripts import Transcriber
    from polarproxy.export.desk import Desk
    from polarproxy.store.leases import Leases
    from polarproxy.store.repository import Repository

    repository = Repository(engine)
    return Desk(repository, Leases(engine), known_recipes(), Transcriber(repository).transcribe)
