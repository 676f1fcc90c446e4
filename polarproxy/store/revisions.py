"""Which schema a database has, and whether it is ours. Whoever only reads pays for no more: `migrate` is for changing it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import inspect
from sqlalchemy.exc import DatabaseError

from polarproxy.errors import WrongDatabase
from polarproxy.store.database import reason
from polarproxy.store.schema import metadata

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine

_PACKAGE = Path(__file__).resolve().parent.parent
_REVISION = re.compile(r"(\d{4})_\w+\.py")
_VERSION = "alembic_version"


def migrations_folder() -> Path:
    """Inside an installed package, or beside it in a checkout."""
    installed = _PACKAGE / "_migrations"
    return installed if installed.is_dir() else _PACKAGE.parent / "migrations"


def known() -> set[str]:
    """The revisions that this version of polarproxy knows: the numbers of the files, of which there is one line."""
    names = (path.name for path in (migrations_folder() / "versions").glob("*.py"))
    found = {match[1] for match in map(_REVISION.fullmatch, names) if match}
    if not found:
        raise WrongDatabase(f"there are no migrations in {migrations_folder()}; the installation is incomplete")
    return found


def head() -> str:
    """The revision that this version of polarproxy reads and writes."""
    return max(known())


def current(engine: Engine) -> str | None:
    """The database's revision, None when it is empty; raises `WrongDatabase` when it is not ours."""
    try:
        with engine.connect() as connection:
            tables = set(inspect(connection).get_table_names())
            revision = _revision(connection) if _VERSION in tables else None
    except DatabaseError as error:
        if getattr(error.orig, "sqlite_errorname", "").startswith("SQLITE_READONLY"):
            raise WrongDatabase(
                f"{engine.url.render_as_string()} cannot be read where it lies: SQLite makes files beside a database while"
                " it is open, which is not allowed there (the folder is read-only); copy it to a folder of yours"
            ) from error
        what = "be read as a database" if engine.dialect.name == "sqlite" else "be used"
        raise WrongDatabase(f"{engine.url.render_as_string()} cannot {what}: {reason(error)}") from error
    others = tables - {_VERSION}
    if revision is None and others:
        names = ", ".join(sorted(others)[:5])
        raise WrongDatabase(
            f"{engine.url.render_as_string()} holds tables of something else ({names}); nothing was touched"
        )
    if revision == head() and (missing := set(metadata.tables) - tables):
        raise WrongDatabase(
            f"{engine.url.render_as_string()} has schema {revision} without its tables {', '.join(sorted(missing)[:5])};"
            " it belongs to another program, or was damaged"
        )
    return revision


def _revision(connection: Connection) -> str | None:
    found: str | None = connection.exec_driver_sql(f"SELECT version_num FROM {_VERSION}").scalars().first()
    return found


def require_known(revision: str | None) -> None:
    """Raises `WrongDatabase` for a revision that this version does not know."""
    if revision is not None and revision not in known():
        raise WrongDatabase(
            f"the database has schema {revision}, made by a newer polarproxy; this one knows up to {head()}"
        )


def require_current(engine: Engine) -> None:
    """Raises `WrongDatabase` unless the schema is the current one."""
    found = current(engine)
    require_known(found)
    if found != head():
        state = "is empty" if found is None else f"has schema {found}"
        raise WrongDatabase(f"the database {state}, this polarproxy needs {head()}; run `polarproxy db upgrade`")
