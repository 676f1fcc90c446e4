"""Recorded turns by what was said until then: where the next request of a conversation goes on from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import select

from polarproxy.store import rows
from polarproxy.store.schema import calls, completions
from polarproxy.store.tokens import PromptReader

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection, RowMapping

    from polarproxy.model import Completion, TokenIds

_AT_ONCE = 500
"""Keys that are looked for in one query, those of the latest turns first."""


@dataclass(frozen=True, slots=True)
class FoundTurn:
    """A stored completion with the prompt that it was sampled after, both proven against their digests."""

    call_id: str
    key: bytes
    prompt: TokenIds
    completion: Completion


def longest(connection: Connection, session_id: str, keys: Sequence[bytes]) -> FoundTurn | None:
    """The turn of this session that has the last one of the keys that any has; None when none has one of them.

    Of several turns with one key the one that arrived last counts, of its choices the first. Raises `StoreDamaged`.
    """
    for stop in range(len(keys), 0, -_AT_ONCE):
        places = {key: place for place, key in enumerate(keys[max(0, stop - _AT_ONCE) : stop])}
        row = _best(connection, session_id, places)
        if row is not None:
            return _read(connection, row)
    return None


def _best(connection: Connection, session_id: str, places: dict[bytes, int]) -> RowMapping | None:
    query = (
        select(completions, calls.c.ordinal)
        .join(calls, calls.c.call_id == completions.c.call_id)
        .where(completions.c.turn_key.in_(places), calls.c.session_id == session_id)
    )
    found = connection.execute(query).mappings().all()
    return max(found, key=lambda row: (places[row["turn_key"]], row["ordinal"], -row["choice_index"]), default=None)


def _read(connection: Connection, row: RowMapping) -> FoundTurn | None:
    call = connection.execute(select(calls).where(calls.c.call_id == row["call_id"])).mappings().one()
    prompt = PromptReader(connection).prompt(call)
    if prompt is None:
        return None
    return FoundTurn(row["call_id"], row["turn_key"], prompt, rows.read_completion(row, prompt))
