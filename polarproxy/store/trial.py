"""Whether calls can be committed again, found out without one: by a row that is gone before anybody sees it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import delete, false, insert, select

from polarproxy.store.schema import (
    blobs,
    bodies,
    body_blobs,
    call_facts,
    calls,
    completions,
    responses,
    sessions,
    token_texts,
)

if TYPE_CHECKING:
    from sqlalchemy import Connection

_TABLES = (sessions, bodies, blobs, body_blobs, calls, completions, token_texts, responses, call_facts)
"""What is inserted into for a call: each must be there, and this user must have the right."""
_KEY = bytes(16)
"""The digest of nothing that is ever stored."""
_BYTES = 64 << 10
"""As much as a call of some length: a full disk may have room for a word."""


@dataclass(frozen=True, slots=True)
class Trial:
    """An item that stores nothing: when it is committed, calls can be."""


def try_out(connection: Connection) -> None:
    """Writes as much as a call takes, in a transaction that is to be committed, and leaves nothing behind."""
    for table in _TABLES:
        connection.execute(insert(table).from_select(list(table.c), select(table).where(false())))
    connection.execute(insert(blobs), [{"digest": _KEY, "data": bytes(_BYTES)}])
    connection.execute(delete(blobs).where(blobs.c.digest == _KEY))
