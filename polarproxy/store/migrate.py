"""Bringing a database to the current schema, and refusing one that is not ours or is newer than this version."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import inspect
from sqlalchemy.exc import DatabaseError

from polarproxy.errors import WrongDatabase
from polarproxy.store.database import for_writing, reason, use_wal
from polarproxy.store.schema import metadata

if TYPE_CHECKING:
    from sqlalchemy import Engine

_MIGRATING = 7_014_201
"""The lock that a migration of ours holds, among PostgreSQL's advisory locks."""
_PACKAGE = Path(__file__).resolve().parent.parent


def migrations_folder() -> Path:
    """Inside an installed package, or beside it in a checkout."""
    installed = _PACKAGE / "_migrations"
    return installed if installed.is_dir() else _PACKAGE.parent / "migrations"


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(migrations_folder()).replace("%", "%%"))
    return config


def head() -> str:
    """The revision that this version of polarproxy reads and writes."""
    revision = ScriptDirectory.from_config(_config()).get_current_head()
    if revision is None:
        raise WrongDatabase(f"there are no migrations in {migrations_folder()}; the installation is incomplete")
    return revision


def current(engine: Engine) -> str | None:
    """The database's revision, None when it is empty; raises `WrongDatabase` when it is not ours."""
    try:
        with engine.connect() as connection:
            revision = MigrationContext.configure(connection).get_current_revision()
            tables = set(inspect(connection).get_table_names()) - {"alembic_version"}
    except DatabaseError as error:
        what = "be read as a database" if engine.dialect.name == "sqlite" else "be used"
        raise WrongDatabase(f"{engine.url.render_as_string()} cannot {what}: {reason(error)}") from error
    if revision is None and tables:
        names = ", ".join(sorted(tables)[:5])
        raise WrongDatabase(
            f"{engine.url.render_as_string()} holds tables of something else ({names}); nothing was touched"
        )
    if revision == head() and (missing := set(metadata.tables) - tables):
        raise WrongDatabase(
            f"{engine.url.render_as_string()} has schema {revision} without its tables {', '.join(sorted(missing)[:5])};"
            " it belongs to another program, or was damaged"
        )
    return revision


def upgrade(engine: Engine) -> str:
    """Applies what is missing and returns the revision; raises `WrongDatabase` for a newer or foreign database."""
    found = current(engine)
    known = {script.revision for script in ScriptDirectory.from_config(_config()).walk_revisions()}
    if found is not None and found not in known:
        raise WrongDatabase(
            f"the database has schema {found}, made by a newer polarproxy; this one knows up to {head()}"
        )
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


def require_current(engine: Engine) -> None:
    """Raises `WrongDatabase` unless the schema is the current one."""
    found = current(engine)
    if found != head():
        state = "is empty" if found is None else f"has schema {found}"
        raise WrongDatabase(f"the database {state}, this polarproxy needs {head()}; run `polarproxy db upgrade`")


def _run(engine: Engine, revision: str, *, up: bool) -> None:
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
