"""Replies that a client may ask for again, or continue: the stored responses of the OpenAI Responses API.

They are kept for the API's sake; the record of what was sampled is the call. Deleting one leaves the call as it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
from sqlalchemy import delete, select

from polarproxy.store import codec
from polarproxy.store.schema import calls, responses
from polarproxy.wire.responses.items import output_items

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from polarproxy.store.rows import Row

_array = msgspec.json.Decoder(list[msgspec.Raw])
_LONGEST = 10_000
"""Responses in one chain; what claims to be longer goes in a circle."""


@dataclass(frozen=True, slots=True)
class StoredResponse:
    """One response and the items it answered."""

    response_id: str
    previous_id: str | None
    """The response that it continues. None: it begins a conversation."""
    input: bytes
    """Its own input items, a JSON array."""
    reply: bytes
    """The response object, JSON."""

    def items(self) -> list[bytes]:
        """What was asked and what was answered, in order."""
        return [*(bytes(item) for item in _array.decode(self.input)), *output_items(self.reply)]

    def row(self, call_id: str) -> Row:
        """The row of `responses`."""
        return {
            "response_id": self.response_id,
            "call_id": call_id,
            "previous_id": self.previous_id,
            "input": codec.compress(self.input),
            "reply": codec.compress(self.reply),
        }


@dataclass(frozen=True, slots=True)
class FoundResponse:
    """A stored response and the session it belongs to."""

    response: StoredResponse
    session_id: str


def find(connection: Connection, response_id: str) -> FoundResponse | None:
    """The response with this id; None when there is none. Raises `StoreDamaged`."""
    query = select(responses, calls.c.session_id).join(calls, calls.c.call_id == responses.c.call_id)
    row = connection.execute(query.where(responses.c.response_id == response_id)).mappings().one_or_none()
    if row is None:
        return None
    kept = StoredResponse(
        response_id=row["response_id"],
        previous_id=row["previous_id"],
        input=codec.decompress(row["input"]),
        reply=codec.decompress(row["reply"]),
    )
    return FoundResponse(kept, row["session_id"])


def chain(connection: Connection, response_id: str) -> list[FoundResponse]:
    """The responses up to this one, the first one first; empty when one of them is gone. Raises `StoreDamaged`."""
    found: list[FoundResponse] = []
    wanted: str | None = response_id
    while wanted is not None and len(found) < _LONGEST:
        one = find(connection, wanted)
        if one is None:
            return []
        found.append(one)
        wanted = one.response.previous_id
    return found[::-1]


def forget(connection: Connection, response_id: str) -> None:
    """Deletes a response; the call it came from stays."""
    connection.execute(delete(responses).where(responses.c.response_id == response_id))
