"""Who asks, and for what."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from multidict import MultiMapping

    from polarproxy.proxy.address import Address
    from polarproxy.proxy.routes import Route
    from polarproxy.wire.responses.items import Head


@dataclass(frozen=True, slots=True)
class Visit:
    """A request to a route that a dialect has."""

    method: str
    headers: MultiMapping[str]
    query: Mapping[str, str]
    """The query string's members, decoded."""
    raw_query: str
    """The query string as it was sent."""
    address: Address
    route: Route


@dataclass(frozen=True, slots=True)
class Said:
    """What a client sent, and what it means with everything put in that it refers to."""

    body: bytes
    whole: bytes
    session_id: str | None = None
    """The session of the earlier response that it continues. None: it continues none by name."""
    head: Head | None = None
    """What a request of the Responses API says of itself. None: it is of another dialect."""
    sent: bytes | None = None
    """The body as it came, when halves of characters in it had to be replaced to read it. None: it came as `body`."""
