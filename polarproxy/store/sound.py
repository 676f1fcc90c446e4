"""Telling what is stored and cannot be read from everything else that can go wrong while reading it.

Whatever changed a file behind the store's back (a bad disk, a hand) may have left any value in any column, and the first
code that works with it fails in a way of its own. To whoever asked, all of that is one thing: the record is damaged.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import msgspec
from sqlalchemy.exc import DBAPIError, OperationalError, StatementError

from polarproxy.errors import InvalidValue, StoreDamaged

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Connection, Engine

_UNREADABLE = (
    ArithmeticError,
    AttributeError,
    InvalidValue,
    LookupError,
    StatementError,
    TypeError,
    ValueError,
    msgspec.MsgspecError,
)
_NO_TEXT = "Could not decode to UTF-8"
"""How SQLite's driver says that a text is none. It says so of the database as a whole, but only the value is at fault."""


@contextmanager
def sound() -> Iterator[None]:
    """In the block, a value that nobody can have written raises `StoreDamaged`; what the database itself says stays."""
    try:
        yield
    except _UNREADABLE as error:
        if isinstance(error, DBAPIError) and not is_no_text(error):
            raise
        said = error.orig if isinstance(error, StatementError) else error
        raise StoreDamaged(f"the database holds a value that nobody wrote: {type(said).__name__}: {said}") from error


def is_no_text(error: DBAPIError) -> bool:
    """Whether a text that was read is not UTF-8."""
    return isinstance(error, OperationalError) and _NO_TEXT in str(error.orig)


@contextmanager
def reading_from(engine: Engine) -> Iterator[Connection]:
    """A transaction that only reads; see `sound`."""
    with engine.begin() as connection, sound():
        yield connection
