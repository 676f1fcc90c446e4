"""An entry that comes from a file is one that this version could have written: its columns, its values, its digests."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

from polarproxy.errors import BadArchive, InvalidValue, StoreDamaged
from polarproxy.model import Call, TokenIds
from polarproxy.store import codec, values
from polarproxy.store.entries import (
    CALL_COLUMNS,
    COMPLETION_COLUMNS,
    RESPONSE_COLUMNS,
    SESSION_COLUMNS,
    CallEntry,
    SessionEntry,
)
from polarproxy.store.facts import LABEL, read_label
from polarproxy.store.schema import UTCDateTime, calls, completions, responses, sessions
from polarproxy.store.text import AnyText, unescape

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sqlalchemy import Column, Table

    from polarproxy.store.rows import Row


@dataclass(frozen=True, slots=True)
class Checked:
    """A call that can be stored."""

    entry: CallEntry
    """With every column, in the order of the tables."""
    call: Call
    row: Row
    """Columns of `calls` but those that say how the prompt is stored."""
    completions: list[Row]
    facts: list[Row]
    responses: list[Row]


def check_session(entry: SessionEntry) -> SessionEntry:
    """The session with every column, in the order of the table; raises `BadArchive`."""
    entry = msgspec.structs.replace(
        entry,
        row=_checked(sessions, SESSION_COLUMNS, entry.row),
        rewards=[given.plain() for given in entry.rewards],
    )
    try:
        values.read_session(stored_row(entry.row), None)  # type: ignore[arg-type]
        for given in entry.rewards:
            given.read()
    except (ValueError, msgspec.DecodeError, InvalidValue) as error:
        raise BadArchive(f"session {entry.session_id} holds a value that nobody wrote: {error}") from error
    return entry


def stored_row(row: Row) -> Row:
    """The row as a database takes it: its texts as they were given."""
    return {name: unescape(value) if isinstance(value, str) else value for name, value in row.items()}


def check_call(session_id: str, entry: CallEntry) -> Checked:
    """The call, proven against its digests, and its rows; raises `BadArchive`."""
    entry = CallEntry(
        row=_checked(calls, CALL_COLUMNS, entry.row),
        prompt=entry.prompt,
        completions=[_checked(completions, COMPLETION_COLUMNS, completion) for completion in entry.completions],
        facts=entry.facts,
        body=entry.body,
        responses=[_checked(responses, RESPONSE_COLUMNS, response) for response in entry.responses],
    )
    row, owner = stored_row(entry.row), {"call_id": entry.call_id}
    if row["session_id"] != session_id:
        raise BadArchive(f"call {entry.call_id} stands among those of session {session_id}")
    if row["body_digest"] != (None if entry.body is None else codec.digest(entry.body)):
        raise BadArchive(f"call {entry.call_id}: its body is not the one that its digest names")
    completed = [owner | _packed(completion, codec.encode_ids, "token_ids") for completion in entry.completions]
    facts = [owner | {"recorded_at": at, "name": name, "value": unescape(text)} for at, name, text in entry.facts]
    call = _call(entry, row, completed)
    _read_labels(entry, facts)
    return Checked(
        entry=entry,
        call=call,
        row=row,
        completions=completed,
        facts=facts,
        responses=[owner | _packed(response, codec.compress, "input", "reply") for response in entry.responses],
    )


def _read_labels(entry: CallEntry, facts: Sequence[Row]) -> None:
    try:
        for fact in facts:
            if fact["name"] == LABEL:
                read_label(fact)
    except StoreDamaged as error:
        raise BadArchive(str(error)) from error


def _packed(row: Row, encode: Callable[[bytes], bytes], *names: str) -> Row:
    return stored_row(row) | {name: encode(row[name]) for name in names}


def _call(entry: CallEntry, row: Row, completed: list[Row]) -> Call:
    try:
        prompt = None if entry.prompt is None else TokenIds(entry.prompt)
        written = (None, None) if prompt is None else (len(prompt), codec.digest(prompt.raw))
        if written != (row["prompt_length"], row["prompt_digest"]):
            raise BadArchive(f"call {entry.call_id}: its prompt does not match its length and digest")
        sampled = [values.read_completion(completion, prompt) for completion in completed]  # type: ignore[arg-type]
        return values.read_call(row, prompt, sampled, entry.body or b"")  # type: ignore[arg-type]
    except (StoreDamaged, InvalidValue) as error:
        raise BadArchive(f"call {entry.call_id} cannot be read: {error}") from error


def _checked(table: Table, names: Sequence[str], row: Row) -> Row:
    for unknown in row.keys() - set(names):
        raise BadArchive(f"{table.name} has no column {unknown!r} in this polarproxy; a newer one made the archive")
    return {name: _fitting(table.c[name], row.get(name)) for name in names}


def _fitting(column: Column[Any], value: Any) -> Any:
    wrong = misfit(column, value)
    if wrong is not None:
        raise BadArchive(f"a value of the archive does not fit: {wrong}")
    return value + 0.0 if isinstance(value, float) else value


def misfit(column: Column[Any], value: Any) -> str | None:
    """Why the column cannot hold the value. None: it can."""
    if value is None:
        return None if column.nullable else f"{column.table.name}.{column.name} is missing"
    kind = _kind(column)
    if isinstance(value, kind) and (kind is not int or not isinstance(value, bool)):
        return None
    return f"{column.table.name}.{column.name} is {kind.__name__}, and not {type(value).__name__}"


def _kind(column: Column[Any]) -> type:
    """What a column's values are, in Python."""
    if isinstance(column.type, UTCDateTime):
        return datetime
    return str if isinstance(column.type, AnyText) else column.type.python_type
