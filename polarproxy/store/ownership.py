"""One runner a job: who works on its rollouts, where several processes share the database."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import xxhash
from sqlalchemy.exc import DBAPIError

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine


class Ownership:
    """A job as far as this process works on it. A SQLite file has one process, which owns every job in it.

    On PostgreSQL it is an advisory lock of a connection of its own, which the server gives back when the process dies.
    """

    def __init__(self, engine: Engine, job: str) -> None:
        self._engine = engine if engine.dialect.name == "postgresql" else None
        self._key = xxhash.xxh3_64_intdigest(f"polarproxy job {job}".encode("utf-8", "surrogatepass")) - (1 << 63)
        self._connection: Connection | None = None

    def held(self) -> bool:
        """Whether the job is this process's now; takes it when nobody has it."""
        if self._engine is None:
            return True
        try:
            if self._connection is None:
                self._connection = self._engine.execution_options(isolation_level="AUTOCOMMIT").connect()
            # A lock of this connection can be taken again; what is not given back at its end is given back with it.
            asked = "SELECT pg_try_advisory_lock(%(key)s)"
            return bool(self._connection.exec_driver_sql(asked, {"key": self._key}).scalar_one())
        except DBAPIError:
            self.release()
            return False

    def release(self) -> None:
        """Somebody else may have it."""
        if self._connection is None:
            return
        connection, self._connection = self._connection, None
        with suppress(DBAPIError):
            connection.exec_driver_sql("SELECT pg_advisory_unlock_all()")
        # Not back into the pool: should that have failed, the server gives the lock back when the connection ends.
        connection.invalidate()
        connection.close()
