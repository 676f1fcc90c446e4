"""Bringing a database to the current schema, or back to an older one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy.exc import DatabaseError

from polarproxy.errors import WrongDatabase
from polarproxy.store.database import for_writing, reason, require_writable, use_wal
from polarproxy.store.revisions import current, head, migrations_folder, require_known

if TYPE_CHECKING:
    from alembic.config import Config
    from sqlalchemy import Engine

_MIGRATING = 7_014_201
"""The lock that a migration of ours holds, among PostgreSQL's advisory locks."""


def _config() -> Config:
    # Not at the top: it takes as long as all else, and nearly every start finds the schema as it should be.
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(migrations_folder()).replace("%", "%%"))
    return config


def require_usable(engine: Engine) -> str | None:
    """The revision, None for an empty database; raises `WrongDatabase` for one that is newer, foreign, or may only be read.

    Nothing is changed, so whoever makes files beside a database asks first.
    """
    found = current(engine)
    require_known(found)
    require_writable(engine)
    return found


def upgrade(engine: Engine) -> str:
    """Applies what is missing and returns the revision; raises `WrongDatabase` for a newer or foreign database."""
    found = require_usable(engine)
    use_wal(engine)
    _require_unicode(engine)
    if found != head():
        _run(engine, "head", up=True)
    return head()


def _require_unicode(engine: Engine) -> None:
    """Raises `WrongDatabase` for a database that cannot hold every text."""
    if engine.dialect.name != "postgresql":
        return
    with engine.connect() as connection:
        encoding = connection.exec_driver_sql("SHOW server_encoding").scalar_one()
    if encoding != "UTF8":
        raise WrongDatabase(
            f"{engine.url.render_as_string()} holds text as {encoding}; make a database with ENCODING 'UTF8'"
        )


def downgrade(engine: Engine, revision: str) -> None:
    """Takes migrations back, down to a revision or `base`."""
    _run(engine, revision, up=False)


def _run(engine: Engine, revision: str, *, up: bool) -> None:
    from alembic import command

    config = _config()
    try:
        with for_writing(engine).begin() as connection:
            if engine.dialect.name == "postgresql":
                # One at a time, as SQLite has it by itself: the second one finds nothing left to do.
                connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_MIGRATING})")
            config.attributes["connection"] = connection
            (command.upgrade if up else command.downgrade)(config, revision)
    except DatabaseError as error:
        raise WrongDatabase(f"the database cannot be changed: {reason(error)}") from error
