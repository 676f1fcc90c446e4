"""Inserts that are compiled once: SQLAlchemy writes the SQL and converts the values, the driver runs it for many rows.

The same statements executed by SQLAlchemy itself cost several times the driver's work, group after group.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import insert
from sqlalchemy.dialects import postgresql, sqlite

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sqlalchemy import Connection, Dialect, Insert, Table

    from polarproxy.store.rows import Row


class CompiledInsert:
    """An insert into one table, for rows that have these columns."""

    def __init__(self, statement: Insert, columns: Sequence[str], dialect: Dialect) -> None:
        compiled = statement.compile(dialect=dialect, column_keys=list(columns))
        self._sql = str(compiled)
        table: Table = statement.table  # type: ignore[assignment]
        self._converters: list[tuple[str, Callable[[Any], Any] | None]] = [
            (name, table.c[name].type.dialect_impl(dialect).bind_processor(dialect))
            for name in (compiled.positiontup or columns)
        ]
        self._positional = compiled.positional

    def run(self, connection: Connection, rows: list[Row]) -> None:
        """Inserts the rows."""
        if self._positional:
            values: list[Any] = [tuple(self._converted(row)) for row in rows]
        else:
            names = [name for name, _ in self._converters]
            values = [dict(zip(names, self._converted(row), strict=True)) for row in rows]
        connection.exec_driver_sql(self._sql, values)

    def _converted(self, row: Row) -> list[Any]:
        return [row[name] if convert is None else convert(row[name]) for name, convert in self._converters]


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
    if dialect.name == "postgresql":
        return postgresql.insert(table).on_conflict_do_nothing()
    return sqlite.insert(table).on_conflict_do_nothing()
