"""Alembic's entry: on the connection that `polarproxy.store.migrate` hands in, or on `-x db=URL` for developers."""

from __future__ import annotations

from alembic import context

from polarproxy.store.database import open_database
from polarproxy.store.schema import metadata


def run() -> None:
    """Runs the migrations."""
    connection = context.config.attributes.get("connection")
    if connection is not None:
        _configure_and_run(connection)
        return
    url = context.get_x_argument(as_dictionary=True).get("db", "sqlite:///polar.db")
    with open_database(url, create=True).begin() as opened:
        _configure_and_run(opened)


def _configure_and_run(connection: object) -> None:
    context.configure(connection=connection, target_metadata=metadata, render_as_batch=True)  # type: ignore[arg-type]
    context.run_migrations()


run()
