"""Inserts that are compiled once: SQLAlchemy writes the SQL and converts the values, the driver runs it for many rows.

The same statements executed by SQLAlchemy itself cost several times the driver's work, group after group. PostgreSQL takes the
rows of a group at once, by COPY or as arrays, which costs server and client a third less.
"""

from __future__ import annotations

from contextlib import closing, contextmanager
from importlib import import_module
from itertools import compress
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from sqlalchemy import TypeDecorator
from sqlalchemy.exc import DataError, DBAPIError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from sqlalchemy import Connection, Dialect, Insert, Table

    from polarproxy.store.rows import Row


@contextmanager
def translated(connection: Connection, sql: str) -> Iterator[None]:
    """What the driver raises in the block is raised as SQLAlchemy would raise it; a connection that broke is given up."""
    dialect = connection.dialect
    errors = dialect.loaded_dbapi.Error
    try:
        yield
    except OverflowError as error:
        # Both drivers say so of a number that is too large.
        raise DataError(sql, None, error) from error
    except errors as error:
        broken = dialect.is_disconnect(error, connection.connection.dbapi_connection, None)
        if broken:
            connection.invalidate(error)
        raise DBAPIError.instance(sql, None, error, errors, connection_invalidated=broken, dialect=dialect) from error


_ONCE = " ON CONFLICT DO NOTHING"


class _Compiled:
    """An insert into one table, for rows that have these columns."""

    _sql: str

    def __init__(self, table: Table, columns: Sequence[str], dialect: Dialect) -> None:
        self._names = list(columns)
        self._pick = itemgetter(*self._names)
        types = [table.c[name].type.dialect_impl(dialect) for name in self._names]
        self._types = [_plain(kind.compile(dialect)) for kind in types]
        # What SQLAlchemy's own types would make of a value, the drivers make of it themselves.
        ours = ((place, kind) for place, kind in enumerate(types) if isinstance(kind, TypeDecorator))
        converters = ((place, kind.bind_processor(dialect)) for place, kind in ours)
        self._converters: list[tuple[int, Callable[[Any], Any]]]
        self._converters = [(place, convert) for place, convert in converters if convert is not None]

    def run(self, connection: Connection, rows: list[Row]) -> None:
        """Inserts the rows; raises what SQLAlchemy makes of the driver's errors."""
        with translated(connection, self._sql), closing(connection.connection.cursor()) as cursor:
            columns: list[Sequence[Any]] = list(zip(*map(self._pick, rows), strict=True))
            for place, convert in self._converters:
                columns[place] = [*map(convert, columns[place])]
            self._insert(cursor, columns)

    def _insert(self, cursor: Any, columns: list[Sequence[Any]]) -> None:
        raise NotImplementedError


class _ByRow(_Compiled):
    """Row by row, as every driver can.

    For each NULL that is bound SQLite's driver looks for an adapter, which would take longer than all the rest of a call's row:
    columns that never held anything else are left out.
    """

    def __init__(self, table: Table, columns: Sequence[str], dialect: Dialect, *, once: bool) -> None:
        super().__init__(table, columns, dialect)
        self._table = table.name
        self._mark = "%b" if dialect.name == "postgresql" else "?"
        self._end = _ONCE if once else ""
        self._used = [not table.c[name].nullable for name in self._names]
        self._use([])

    def _use(self, places: Iterable[int]) -> None:
        for place in places:
            self._used[place] = True
        names = list(compress(self._names, self._used))
        marks = ", ".join([self._mark] * len(names))
        self._sql = f"INSERT INTO {self._table} ({', '.join(names)}) VALUES ({marks}){self._end}"

    def _insert(self, cursor: Any, columns: list[Sequence[Any]]) -> None:
        fresh = [place for place, used in enumerate(self._used) if not used and _any_given(columns[place])]
        if fresh:
            self._use(fresh)
        cursor.executemany(self._sql, list(zip(*compress(columns, self._used), strict=True)))


class _ByCopy(_Compiled):
    """PostgreSQL's own way. It knows nothing of rows that may be there already."""

    def __init__(self, table: Table, columns: Sequence[str], dialect: Dialect) -> None:
        super().__init__(table, columns, dialect)
        self._converters += [(place, _in_4_bytes) for place, kind in enumerate(self._types) if kind == "integer"]
        self._sql = f"COPY {table.name} ({', '.join(self._names)}) FROM STDIN (FORMAT BINARY)"

    def _insert(self, cursor: Any, columns: list[Sequence[Any]]) -> None:
        with cursor.copy(self._sql) as copy:
            copy.set_types(self._types)
            for row in zip(*columns, strict=True):
                copy.write_row(row)


class _ByArrays(_Compiled):
    """An array for each column. Rows whose key is there stay as they are."""

    def __init__(self, table: Table, columns: Sequence[str], dialect: Dialect) -> None:
        super().__init__(table, columns, dialect)
        arrays = ", ".join(f"%b::{kind}[]" for kind in self._types)
        self._sql = f"INSERT INTO {table.name} ({', '.join(self._names)}) SELECT * FROM unnest({arrays}){_ONCE}"

    def _insert(self, cursor: Any, columns: list[Sequence[Any]]) -> None:
        cursor.execute(self._sql, [list(column) for column in columns])


def _any_given(column: Sequence[Any]) -> bool:
    """Whether any of the values is not None."""
    return column[0] is not None or column.count(None) < len(column)


def _in_4_bytes(number: int | None) -> int | None:
    """The driver would cut off what is more."""
    if number is not None and not -(1 << 31) <= number < 1 << 31:
        raise OverflowError(f"{number} does not fit into 4 bytes")
    return number


def _plain(type_name: str) -> str:
    """Of a type of SQL as the driver knows it: without its length, and `float` is one of 8 bytes."""
    name = type_name.partition("(")[0].lower()
    return "float8" if name == "float" else name


class Inserts:
    """The inserts of one database, compiled when first used."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._compiled: dict[tuple[Table, bool, bool], _Compiled] = {}

    def run(
        self, connection: Connection, table: Table, rows: list[Row], *, once: bool = False, few: bool = False
    ) -> None:
        """Inserts rows that all have the same columns. `once`: those whose key is there already stay as they are. `few`: in a
        pipeline, as one row more or less costs nothing there."""
        if not rows:
            return
        if once and self._dialect.name == "postgresql" and len(rows) > 1:
            # Other processes may be inserting the same rows: all take them in one order, so that no two wait for each other.
            key = [column.name for column in table.primary_key]
            rows = sorted(rows, key=lambda row: [row[name] for name in key])
        compiled = self._compiled.get((table, once, few))
        if compiled is None:
            compiled = _compile(table, list(rows[0]), self._dialect, once=once, few=few)
            self._compiled[table, once, few] = compiled
        compiled.run(connection, rows)


def _compile(table: Table, columns: Sequence[str], dialect: Dialect, *, once: bool, few: bool) -> _Compiled:
    if dialect.name == "sqlite" or few:
        return _ByRow(table, columns, dialect, once=once)
    return (_ByArrays if once else _ByCopy)(table, columns, dialect)


def insert_once(table: Table, dialect: Dialect) -> Insert:
    """An insert that leaves rows whose key is there already as they are."""
    kind = import_module(f"sqlalchemy.dialects.{dialect.name}")
    made: Insert = kind.insert(table).on_conflict_do_nothing()
    return made
