"""What became known of a call after it was stored: rows of `call_facts`, which are added and never changed."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec
from sqlalchemy import insert, select

from polarproxy.errors import StoreDamaged
from polarproxy.model import CallKind, Label
from polarproxy.store.schema import DELIVERED, call_facts
from polarproxy.store.text import escape, unescape

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sqlalchemy import Connection, RowMapping

LABEL = "label"


class _Said(msgspec.Struct, omit_defaults=True):
    kind: CallKind | None
    by: str
    note: str | None = None


_said = msgspec.json.Decoder(_Said)


@dataclass(slots=True)
class Known:
    """All that became known of one call."""

    delivered: bool = False
    labels: list[Label] = field(default_factory=list)
    """In the order in which they were given."""


def known_of(connection: Connection, chosen: Any) -> dict[str, Known]:
    """What became known of the chosen calls (a select of their ids), by call. Raises `StoreDamaged`."""
    query = select(call_facts).where(call_facts.c.call_id.in_(chosen)).order_by(call_facts.c.fact_id)
    found: dict[str, Known] = {}
    for row in connection.execute(query).mappings():
        known = found.setdefault(row["call_id"], Known())
        if row["name"] == DELIVERED:
            known.delivered = True
        elif row["name"] == LABEL:
            known.labels.append(read_label(row))
    return found


def add_label(connection: Connection, call_id: str, label: Label) -> None:
    """Adds what somebody said a call was for."""
    note = None if label.note is None else escape(label.note)
    value = msgspec.json.encode(_Said(label.kind, escape(label.by), note)).decode()
    row = {"call_id": call_id, "recorded_at": label.at.astimezone(UTC), "name": LABEL, "value": value}
    connection.execute(insert(call_facts), [row])


def read_label(row: RowMapping | Mapping[str, Any]) -> Label:
    """The label of a row that has this name; raises `StoreDamaged`."""
    at: datetime = row["recorded_at"]
    try:
        said = _said.decode(row["value"])
    except msgspec.DecodeError as error:
        raise StoreDamaged(f"call {row['call_id']} has a label that nobody wrote: {row['value'][:80]!r}") from error
    return Label(said.kind, unescape(said.by), at, None if said.note is None else unescape(said.note))
