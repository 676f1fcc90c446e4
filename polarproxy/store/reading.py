"""Whole calls out of their tables, proven against their lengths and digests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import select

from polarproxy.model import CapturedCall
from polarproxy.store import values
from polarproxy.store.bodies import BodyReader
from polarproxy.store.facts import Known, known_of
from polarproxy.store.schema import calls, completions
from polarproxy.store.tokens import PromptReader

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import ColumnElement, Connection, RowMapping


def read_call(connection: Connection, call_id: str) -> CapturedCall | None:
    """One call; None when there is none. Raises `StoreDamaged`."""
    return next(read_calls(connection, calls.c.call_id == call_id), None)


def read_calls(connection: Connection, condition: ColumnElement[bool]) -> Iterator[CapturedCall]:
    """The calls that meet a condition on `calls`, by ordinal. Raises `StoreDamaged`."""
    chosen = select(calls.c.call_id).where(condition)
    query = select(calls).where(condition)
    prompts, requests = PromptReader(connection), BodyReader(connection)
    sampled: dict[str, list[RowMapping]] = {}
    by_choice = select(completions).where(completions.c.call_id.in_(chosen)).order_by(completions.c.choice_index)
    for row in connection.execute(by_choice).mappings():
        sampled.setdefault(row["call_id"], []).append(row)
    prompts.know(row for found in sampled.values() for row in found)
    requests.fetch(condition)
    facts = known_of(connection, chosen)
    for row in connection.execute(query.order_by(calls.c.ordinal)).mappings().all():
        call_id = row["call_id"]
        known = facts.get(call_id, Known())
        prompt = prompts.prompt(row)
        choices = [values.read_completion(choice, prompt) for choice in sampled.get(call_id, ())]
        yield CapturedCall(
            call=values.read_call(row, prompt, choices, requests.body(row["body_digest"])),
            delivered=known.delivered,
            labels=tuple(known.labels),
        )
