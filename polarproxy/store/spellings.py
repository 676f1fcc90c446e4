"""How models spell their tokens, as far as it became known."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from sqlalchemy import select

from polarproxy.store.schema import token_texts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Connection

_AT_ONCE = 2048


def read_texts(connection: Connection, model: str) -> Iterator[list[tuple[int, bytes]]]:
    """The known spellings of a model's tokens by id, some at a time."""
    query = select(token_texts.c.token_id, token_texts.c.text).where(token_texts.c.model == model)
    found = ((row.token_id, row.text) for row in connection.execute(query.order_by(token_texts.c.token_id)))
    while some := list(islice(found, _AT_ONCE)):
        yield some
