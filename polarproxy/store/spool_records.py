"""What a spool holds of the items on their way to the database: the entries of an archive, one record an item.

An entry knows nothing of how the database stores it, so that a spool may be drained by a later version.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime  # noqa: TC003  (msgspec reads annotations at run time)
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from polarproxy.errors import UNREADABLE, BadArchive, DamagedRecord
from polarproxy.store import codec, rows, values
from polarproxy.store.checking import check_call, check_session, stored_row
from polarproxy.store.entries import (
    CALL_COLUMNS,
    COMPLETION_COLUMNS,
    CallEntry,
    SessionEntry,
    taken,
)
from polarproxy.store.items import Fact, NewCall
from polarproxy.store.places import Place
from polarproxy.store.responses import StoredResponse
from polarproxy.store.text import escape, unescape

if TYPE_CHECKING:
    from polarproxy.model import Session
    from polarproxy.store.items import Item


class SpooledSession(msgspec.Struct, frozen=True, tag="session"):
    """A session that was made."""

    session: SessionEntry


class SpooledCall(msgspec.Struct, frozen=True, tag="call"):
    """A call, and the session it belongs to, which is made if it is new."""

    session: SessionEntry
    call: CallEntry
    texts: list[tuple[int, bytes]]
    waits: bool
    """Whether `ordinal` is not its place yet, and only orders it among those that wait for one."""


class SpooledFact(msgspec.Struct, frozen=True, tag="fact"):
    """Something that became known of a call."""

    call_id: str
    recorded_at: datetime
    name: str
    value: str


Record: TypeAlias = SpooledSession | SpooledCall | SpooledFact
_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[SpooledSession | SpooledCall | SpooledFact] = msgspec.msgpack.Decoder(
    SpooledSession | SpooledCall | SpooledFact
)


@dataclass(frozen=True, slots=True)
class Subject:
    """What of an item must be known without reading it."""

    session_id: str | None
    """None: it is a fact."""
    call_id: str | None
    """None: it is a session."""
    ordinal: int | None
    """None: it is no call, or a call that came without a place."""
    place: Place | None
    """Of a call that came without one. None: it is no call, or came with one."""


def subject(item: Item) -> Subject:
    """Of an item."""
    if isinstance(item, NewCall):
        call = item.call
        return Subject(call.session_id, call.call_id, None if item.place else call.ordinal, item.place)
    if isinstance(item, Fact):
        return Subject(None, item.call_id, None, None)
    return Subject(item.session_id, None, None, None)


def encode(item: Item) -> bytes:
    """The bytes of an item's record."""
    return _encoder.encode(_record(item))


def _record(item: Item) -> Record:
    if isinstance(item, NewCall):
        return SpooledCall(_session(item.session), _call(item), list(item.texts.items()), item.place is not None)
    if isinstance(item, Fact):
        return SpooledFact(escape(item.call_id), item.recorded_at, escape(item.name), escape(item.value))
    return SpooledSession(_session(item))


def _session(session: Session) -> SessionEntry:
    row = rows.session_row(session)
    return SessionEntry(row=taken(row, tuple(row)), rewards=[], calls=0)


def _call(item: NewCall) -> CallEntry:
    call, response = item.call, item.response
    if item.place is not None and item.place.arrived is not None:
        call = replace(call, ordinal=item.place.arrived)
    digest = codec.digest(call.request_body) if call.request_body else None
    found = []
    if response is not None:
        row = {"response_id": response.response_id, "previous_id": response.previous_id}
        found = [taken(row, tuple(row)) | {"input": response.input, "reply": response.reply}]
    return CallEntry(
        row=taken(rows.call_row(call, None, digest), CALL_COLUMNS),
        prompt=None if call.prompt_token_ids is None else call.prompt_token_ids.raw,
        completions=[taken(row, COMPLETION_COLUMNS) for row in rows.completion_rows(call)],
        facts=[],
        body=call.request_body or None,
        responses=found,
    )


def decode(data: bytes) -> Item:
    """The item; a call without a place has one that waits. Raises `DamagedRecord`."""
    try:
        record = _decoder.decode(data)
        if isinstance(record, SpooledFact):
            return Fact(unescape(record.call_id), record.recorded_at, unescape(record.name), unescape(record.value))
        session = values.read_session(stored_row(check_session(record.session).row), None)  # type: ignore[arg-type]
        if isinstance(record, SpooledSession):
            return session
        call = check_call(session.session_id, record.call).call
    except (*UNREADABLE, BadArchive) as error:
        raise DamagedRecord(f"a record of the spool cannot be read: {error}") from error
    place = Place(call.session_id, 0, call.ordinal, waits=True) if record.waits else None
    return NewCall(call, session, dict(record.texts), _response(record.call), place)


def _response(entry: CallEntry) -> StoredResponse | None:
    for row in map(stored_row, entry.responses):
        return StoredResponse(row["response_id"], row["previous_id"], row["input"], row["reply"])
    return None
