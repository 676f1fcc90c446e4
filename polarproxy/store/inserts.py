"""Inserts that are compiled once: SQLAlchemy writes the SQL and converts the values, the driver runs it for many rows.

The same statements executed by SQLAlchemy itself cost several times the driver's work, group after group.
"""

from __future__ import annotations

from importlib import import_module
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from sqlalchemy import insert
from sqlalchemy.exc import DBAPIError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection, Dialect, Insert, Table

    from polarproxy.store.rows import Row


class CompiledInsert:
    """An insert into one table, for rows that have these columns."""

    def __init__(self, statement: Insert, columns: Sequence[str], dialect: Dialect) -> None:
        compiled = statement.compile(dialect=dialect, column_keys=list(columns))
        self._sql = str(compiled)
        self._dialect = dialect
        self._positional = compiled.positional
        self._names = list(compiled.positiontup or columns)
        self._pick = itemgetter(*self._names)
        table: Table = statement.table  # type: ignore[assignment]
        converters = (table.c[name].type.dialect_impl(dialect).bind_processor(dialect) for name in self._names)
        self._converters = [(place, convert) for place, convert in enumerate(converters) if convert is not None]

    def run(self, connection: Connection, rows: list[Row]) -> None:
        """Inserts the rows; raises what SQLAlchemy makes of the driver's errors."""
        values = [self._values(row) for row in rows]
        if not self._positional:
            connection.exec_driver_sql(self._sql, [dict(zip(self._names, row, strict=True)) for row in values])
            return
        cursor = connection.connection.cursor()
        errors = self._dialect.loaded_dbapi.Error
        try:
            cursor.executemany(self._sql, values)
        except errors as error:
            raise DBAPIError.instance(self._sql, None, error, errors, dialect=self._dialect) from error
        finally:
            cursor.close()

    def _values(self, row: Row) -> list[Any]:
        values = list(self._pick(row))
        for place, convert in self._converters:
            values[place] = convert(values[place])
        return values


class Inserts:
    """The inserts of one database, compiled when first used."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._compiled: dict[tuple[Table, bool], CompiledInsert] = {}

    def run(self, connection: Connection, table: Table, rows: list[Row], *, once: bool = False) -> None:
        """Inserts rows that all have the same columns. `once`: those whose key is there already stay as they are."""
        if not rows:
            return
        if once and self._dialect.name == "postgresql" and len(rows) > 1:
            # Other processes may be inserting the same rows: all take them in one order, so that no two wait for each other.
            key = [column.name for column in table.primary_key]
            rows = sorted(rows, key=lambda row: [row[name] for name in key])
        compiled = self._compiled.get((table, once))
        if compiled is None:
            # Inline: nobody asks for the keys that the database makes.
            statement = insert_once(table, self._dialect) if once else insert(table).inline()
            compiled = self._compiled[table, once] = CompiledInsert(statement, list(rows[0]), self._dialect)
        compiled.run(connection, rows)


def insert_once(table: Table, dialect: Dialect) -> Insert:
    """An insert that leaves rows whose key is there already as they are."""
    kind = import_module(f"sqlalchemy.dialects.{dialect.name}")
    made: Insert = kind.insert(table).on_conflict_do_nothing()
    return made
