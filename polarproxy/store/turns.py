"""Recorded turns by what was said until then: where the next request of a conversation goes on from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import exists, select

from polarproxy.errors import StoreDamaged
from polarproxy.store import values
from polarproxy.store.schema import DELIVERED, call_facts, calls, completions
from polarproxy.store.tokens import PromptReader

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection

    from polarproxy.model import Completion, TokenIds, TurnMark

_AT_ONCE = 500
"""Keys that are looked for in one query."""


@dataclass(frozen=True, slots=True)
class StoredTurn:
    """A stored completion that a request can go on from, without its tokens."""

    call_id: str
    choice: int
    ordinal: int
    """Place of its call in the session."""
    mark: TurnMark
    delivered: bool
    """Whether the whole reply is known to have been handed to the client."""


def marked(connection: Connection, session_id: str, keys: Sequence[bytes]) -> list[StoredTurn]:
    """The turns of a session with these keys, in order of arrival and choice. Raises `StoreDamaged`."""
    found: list[StoredTurn] = []
    delivered = exists().where(call_facts.c.call_id == calls.c.call_id, call_facts.c.name == DELIVERED)
    columns = [
        column for column in completions.c if column.name in ("call_id", "choice_index") or _is_mark(column.name)
    ]
    query = select(*columns, calls.c.ordinal, delivered.label("delivered")).join(calls)
    for start in range(0, len(keys), _AT_ONCE):
        some = query.where(completions.c.turn_key.in_(keys[start : start + _AT_ONCE]), calls.c.session_id == session_id)
        for row in connection.execute(some).mappings():
            mark = values.read_mark(row)
            if mark is not None:
                place = row["call_id"], row["choice_index"], row["ordinal"]
                found.append(StoredTurn(*place, mark, bool(row["delivered"])))
    return sorted(found, key=lambda turn: (turn.ordinal, turn.choice))


def _is_mark(name: str) -> bool:
    return name.startswith("turn_")


def tokens(connection: Connection, turn: StoredTurn) -> tuple[TokenIds, Completion]:
    """The prompt and the completion of a turn, proven against their digests. Raises `StoreDamaged`."""
    call = connection.execute(select(calls).where(calls.c.call_id == turn.call_id)).mappings().one()
    prompt = PromptReader(connection).prompt(call)
    if prompt is None:
        raise StoreDamaged(f"call {turn.call_id} has a turn to go on from, and no prompt")
    chosen = completions.c.call_id == turn.call_id, completions.c.choice_index == turn.choice
    return prompt, values.read_completion(
        connection.execute(select(completions).where(*chosen)).mappings().one(), prompt
    )
