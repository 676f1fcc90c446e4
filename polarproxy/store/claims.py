"""Sessions that were made on purpose, and come to the database behind their first calls: through a spool, while another proxy
was asked for those."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import select, update

from polarproxy.errors import StoreConflict
from polarproxy.store import rows
from polarproxy.store.schema import sessions
from polarproxy.store.text import encode_pairs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection

    from polarproxy.model import Session

_ON_PURPOSE = "api"
_BARE = {"task_id": None, "group_id": None, "metadata": encode_pairs(())}
"""What a session has that a call made."""


def claim(connection: Connection, made: Sequence[Session]) -> None:
    """Sees to it that the rows of these sessions, each of which is there, say what they were made with.

    One that a call made becomes what was meant; whether it is closed stays. Raises `StoreConflict` when it is another session.
    """
    for session in made:
        wanted = rows.session_row(session)
        own = sessions.c.session_id == session.session_id
        there = connection.execute(select(sessions).where(own)).mappings().one()
        values = {name: value for name, value in wanted.items() if name not in ("session_id", "status")}
        if all(there[name] == value for name, value in values.items()):
            continue
        if there["origin"] == _ON_PURPOSE or any(there[name] != value for name, value in _BARE.items()):
            raise StoreConflict(
                f"session {session.session_id} contradicts what is stored: it was made with another content"
            )
        connection.execute(update(sessions).where(own).values(values))
