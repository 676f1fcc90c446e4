"""Opening a database: URLs, pragmas, and what makes "committed" mean "on the disk"."""

from __future__ import annotations

import logging
import os
import sqlite3
from contextlib import closing
from pathlib import Path
from stat import S_ISDIR
from typing import TYPE_CHECKING, Any

from sqlalchemy import create_engine, event
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DatabaseError, InterfaceError, InternalError, OperationalError
from sqlalchemy.exc import TimeoutError as NoConnection

from polarproxy.errors import StoreUnavailable, WrongDatabase
from polarproxy.store.inserts import translated

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine
    from sqlalchemy.engine import URL
    from sqlalchemy.exc import SQLAlchemyError

BUSY_TIMEOUT_MS = 30_000
_SCHEMES = ("sqlite", "postgresql", "postgresql+psycopg")

_POSTGRES_SESSION = {
    # A commit is acknowledged when it is on the disk, whatever the server's default is.
    "synchronous_commit": "on",
    "timezone": "UTC",
    # Another proxy that stopped in the middle of a transaction holds nobody up for longer.
    "lock_timeout": "15s",
    "idle_in_transaction_session_timeout": "60s",
    "default_transaction_isolation": r"read\ committed",
}
"""Settings of every connection. Those in the URL's own `options` come later and count."""
_POSTGRES_CONNECTION = {
    "fallback_application_name": "polarproxy",
    "connect_timeout": 10,
    # A server that went away without a word is noticed within half a minute, not after hours.
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 25_000,
}
"""Parameters of every connection that the URL does not name."""
_ROLLED_BACK = frozenset({"40001", "40P01"})
"""SQLSTATE of a transaction that lost against another one (serialisation, deadlock)."""

_REFUSED_STATEMENT = "42"
"""Class of SQLSTATE: something that a statement names is not there, or not allowed."""

_OUT_OF_ORDER = (OperationalError, InterfaceError, InternalError, NoConnection, StoreUnavailable)


def parse_url(text: str) -> URL:
    """Raises `WrongDatabase` with the forms that work."""
    forms = "sqlite:///FILE or postgresql://USER@HOST/NAME"
    try:
        url = make_url(text)
    except (ArgumentError, ValueError) as error:
        # Whoever names the file itself wants to know how it is spelled as a URL.
        use = f"did you mean sqlite:///{text}?" if text.strip() and "://" not in text else f"use {forms}"
        raise WrongDatabase(f"{text!r} is not a database URL; {use}") from error
    if url.drivername not in _SCHEMES:
        raise WrongDatabase(f"a database of kind {url.drivername!r} is not supported; use {forms}")
    if url.drivername == "postgresql":
        url = url.set(drivername="postgresql+psycopg")
    if url.drivername == "sqlite" and url.database in (None, "", ":memory:"):
        raise WrongDatabase("a database in memory would lose every call; use sqlite:///FILE")
    if url.drivername == "sqlite" and url.query:
        raise WrongDatabase(f"{text!r} has parameters, which only PostgreSQL takes; use sqlite:///FILE")
    return url


def name_of(text: str) -> str:
    """What the URL names, without the password: the same database has the same name, wherever a process runs."""
    path = sqlite_file(text)
    return f"sqlite:///{path.resolve()}" if path is not None else parse_url(text).set(password=None).render_as_string()


def sqlite_file(text: str) -> Path | None:
    """The file of a SQLite URL, which need not exist; None for another database. Raises `WrongDatabase`."""
    url = parse_url(text)
    if url.drivername != "sqlite":
        return None
    path = Path(str(url.database))
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return path
    except OSError as error:
        raise WrongDatabase(f"{path} cannot be reached: {error.strerror}") from error
    if S_ISDIR(mode):
        raise WrongDatabase(f"{path} is a folder; a database is a file in it")
    return path


def open_database(text: str, *, create: bool = False) -> Engine:
    """An engine for the URL; raises `WrongDatabase` when there is no such file and it is not to be made."""
    url = parse_url(text)
    path = sqlite_file(text)
    if path is not None and not path.exists():
        if not create:
            raise WrongDatabase(
                f"there is no database at {path}; `polarproxy serve` or `polarproxy db upgrade` makes one"
            )
        if not path.parent.is_dir():
            raise WrongDatabase(f"cannot make a database in {path.parent}: there is no such folder")
    try:
        engine = _postgres(url) if path is None else create_engine(url)
    except ModuleNotFoundError as error:
        raise WrongDatabase(f"{error.name} is missing; install it with: pip install 'polarproxy[postgres]'") from error
    if path is not None:
        _use_sqlite(engine)
    return engine


def _postgres(url: URL) -> Engine:
    """Readers see one moment, however many questions they ask; `for_writing` waits for others instead."""
    settings = [f"-c {name}={value}" for name, value in _POSTGRES_SESSION.items()]
    named = url.query.get("options", "")
    options = " ".join([*settings, *([named] if isinstance(named, str) else named)]).strip()
    given = {name: value for name, value in _POSTGRES_CONNECTION.items() if name not in url.query}
    # What goes wrong is raised; the driver says it in the log as well.
    logging.getLogger("psycopg").setLevel(logging.ERROR)
    # A connection that broke while nobody used it is replaced before it is used.
    return create_engine(
        url,
        pool_pre_ping=True,
        isolation_level="REPEATABLE READ",
        connect_args={**given, "options": options},
        # There are no such columns, and every process would ask for their type.
        use_native_hstore=False,
    )


def _use_sqlite(engine: Engine) -> None:
    """FULL so that a commit survives a power cut, and explicit transactions."""

    @event.listens_for(engine, "connect")
    def _on_connect(connection: Any, _record: Any) -> None:
        connection.isolation_level = None
        try:
            with closing(connection.cursor()) as cursor:
                cursor.execute(f"PRAGMA busy_timeout={BUSY_TIMEOUT_MS}")
                cursor.execute("PRAGMA synchronous=FULL")
                cursor.execute("PRAGMA foreign_keys=ON")
        except UnicodeDecodeError as error:
            # SQLite's own words about a damaged schema quote it, and its driver cannot read them.
            raise sqlite3.DatabaseError(f"malformed database schema, with {error}") from error

    @event.listens_for(engine, "begin")
    def _on_begin(connection: Connection) -> None:
        # A transaction that writes takes its lock at once, instead of failing when it turns from reading to writing.
        writes = connection.get_execution_options().get("writes", False)
        begin = "BEGIN IMMEDIATE" if writes else "BEGIN"
        with translated(connection, begin), closing(connection.connection.cursor()) as cursor:
            cursor.execute(begin)


def use_wal(engine: Engine) -> None:
    """WAL, so that readers never block the writer. It is a property of the file, so it is for a database that is ours.

    Raises `WrongDatabase` when the file cannot be changed.
    """
    if engine.dialect.name != "sqlite":
        return
    connection = engine.raw_connection()
    try:
        connection.cursor().execute("PRAGMA journal_mode=WAL")
    except sqlite3.Error as error:
        raise WrongDatabase(f"the database cannot be changed: {error}") from error
    finally:
        connection.close()


def require_writable(engine: Engine) -> None:
    """Raises `WrongDatabase` for a SQLite file that this process may only read: a proxy could store nothing in it.

    SQLite itself says so at the first write only, and then for want of a lock that somebody else may hold.
    """
    if engine.dialect.name != "sqlite":
        return
    # SQLite puts its log beside the file that a link leads to.
    file = Path(str(engine.url.database)).resolve()
    for place, what in ((file, "may only be read"), (file.parent, "is a folder in which no file may be made")):
        if place.exists() and not os.access(place, os.W_OK, effective_ids=os.access in os.supports_effective_ids):
            raise WrongDatabase(f"{place} {what}, so nothing can be stored; change its rights, or use another database")


def for_writing(engine: Engine) -> Engine:
    """The same database, for transactions that change it: SQLite takes the write lock from the start, PostgreSQL sees
    what others committed meanwhile."""
    if engine.dialect.name == "postgresql":
        return engine.execution_options(writes=True, isolation_level="READ COMMITTED")
    return engine.execution_options(writes=True)


def was_rolled_back(error: Exception) -> bool:
    """Whether the transaction lost against another one: nothing of it was done, and doing it again may well succeed."""
    return _sqlstate(error) in _ROLLED_BACK


def is_trouble(error: Exception) -> bool:
    """Whether the database is at fault, whatever it was given: locked, full, unreachable, read-only, silent, damaged, without a
    table or a right.

    The statements are always the same, so what the server says of them says something of the server.
    """
    # None of its kinds: so SQLite's driver tells that a file is damaged, or no database any more.
    damaged = type(error) is DatabaseError
    return damaged or isinstance(error, _OUT_OF_ORDER) or _sqlstate(error).startswith(_REFUSED_STATEMENT)


def _sqlstate(error: Exception) -> str:
    """Empty: SQLite, or the driver was not asked."""
    return str(getattr(getattr(error, "orig", None), "sqlstate", None) or "")


def reason(error: SQLAlchemyError) -> str:
    """What the driver said, or SQLAlchemy where no driver was asked, in one line."""
    return " ".join(str(getattr(error, "orig", error)).split())
