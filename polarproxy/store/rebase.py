"""Prompts that build on calls which are about to go: written so that they stand without them.

Of those that build on one sequence, the one that shares most of it is stored whole, and the others build on that one.
What they share is still stored once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import select, update

from polarproxy.errors import StoreDamaged
from polarproxy.store import codec
from polarproxy.store.bases import PROMPT
from polarproxy.store.schema import calls
from polarproxy.store.tokens import PROMPT_COLUMNS, PromptReader

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection, RowMapping

    from polarproxy.model import TokenIds


def rebase_dependents(connection: Connection, session_ids: Sequence[str]) -> int:
    """Rewrites the prompts of other sessions that build on calls of these; how many there were."""
    going = select(calls.c.call_id).where(calls.c.session_id.in_(session_ids))
    query = select(*PROMPT_COLUMNS).where(calls.c.base_call_id.in_(going), calls.c.session_id.not_in(session_ids))
    dependents: dict[tuple[str, int], list[RowMapping]] = {}
    lengths = _prompt_lengths(connection, session_ids)
    for row in connection.execute(query).mappings():
        # Within its prompt, a call's choices are the same sequence.
        within = row["base_length"] <= (lengths[row["base_call_id"]] or 0)
        dependents.setdefault((row["base_call_id"], PROMPT if within else row["base_choice"]), []).append(row)
    reader = PromptReader(connection)
    for siblings in dependents.values():
        _rebase(connection, reader, siblings)
    return sum(map(len, dependents.values()))


def _prompt_lengths(connection: Connection, session_ids: Sequence[str]) -> dict[str, int | None]:
    query = select(calls.c.call_id, calls.c.prompt_length).where(calls.c.session_id.in_(session_ids))
    return {row.call_id: row.prompt_length for row in connection.execute(query)}


def _rebase(connection: Connection, reader: PromptReader, siblings: list[RowMapping]) -> None:
    root: RowMapping | None = None
    for row in sorted(siblings, key=lambda row: -row["base_length"]):
        if root is not None:
            _change(connection, row, base_call_id=root["call_id"], base_choice=PROMPT)
            continue
        try:
            prompt = reader.prompt(row)
        except StoreDamaged:
            # It could not be read before either, and `db verify` goes on to say so.
            continue
        if prompt is not None:
            root = row
            _make_root(connection, row, prompt)


def _make_root(connection: Connection, row: RowMapping, prompt: TokenIds) -> None:
    whole = codec.encode_ids(prompt.raw)
    _change(connection, row, base_call_id=None, base_choice=None, base_length=None, prompt_suffix=whole)


def _change(connection: Connection, row: RowMapping, **values: object) -> None:
    connection.execute(update(calls).where(calls.c.call_id == row["call_id"]).values(**values))
