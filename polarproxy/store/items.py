"""What is stored: calls, facts about calls, and sessions that are made on purpose."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from polarproxy.model import Session

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from polarproxy.model import Call
    from polarproxy.store.places import Place
    from polarproxy.store.responses import StoredResponse


@dataclass(frozen=True, slots=True)
class NewCall:
    """A call to store, with the session it belongs to, which is made if it is new."""

    call: Call
    session: Session
    texts: Mapping[int, bytes]
    """Spellings of token ids that this process has not stored yet."""
    response: StoredResponse | None = None
    """What a client may ask for again (OpenAI Responses). None: nothing."""
    place: Place | None = None
    """Of a call that came while the database was away; it counts, not the call's ordinal. None: that one counts."""


@dataclass(frozen=True, slots=True)
class Fact:
    """Something that became known about a stored call."""

    call_id: str
    recorded_at: datetime
    name: str
    value: str


Item: TypeAlias = NewCall | Fact | Session
