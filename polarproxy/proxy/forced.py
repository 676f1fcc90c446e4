"""Sampling parameters that a session was made with: every request of it is sent with them, whatever its client asks for."""

from __future__ import annotations

import asyncio
import math
import time
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
from sqlalchemy.exc import DBAPIError

from polarproxy.errors import BadRequest, NotFound, StoreUnavailable
from polarproxy.model import FORCEABLE, Loss
from polarproxy.store.database import reason

if TYPE_CHECKING:
    from collections.abc import Mapping

    from polarproxy.proxy.asking import Asking
    from polarproxy.store.repository import Repository
    from polarproxy.store.shared_arrivals import Spooled
    from polarproxy.wire.chat.fields import Fields

METADATA = "polarproxy.sampling"
"""Under this name a session's metadata holds them, as JSON."""
_KEPT = 65_536
_FRESH_S = 5.0
"""How long it is believed that a session which only its calls made was not made on purpose: that may still be on its way."""
_ON_PURPOSE = "api"
_LIMITS = ("max_tokens", "max_completion_tokens")
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])


def read_forced(given: Mapping[str, float | int]) -> str:
    """As metadata; raises `BadRequest` for a name that is no sampling parameter."""
    unknown = sorted(given.keys() - set(FORCEABLE))
    if unknown:
        raise BadRequest(f"sampling: there is no parameter {unknown[0]!r}; there are {', '.join(FORCEABLE)}")
    return msgspec.json.encode(given).decode()


@dataclass(frozen=True, slots=True)
class _Known:
    fields: Fields
    until: float
    """On the clock of `time.monotonic`; after it the store is asked again."""


class ForcedSampling:
    """What is forced upon the sessions that made calls lately, read from the store on first sight."""

    def __init__(self, repository: Repository, timeout: float, spooled: Spooled | None = None) -> None:
        """An answer of the store that takes longer than `timeout` seconds is none."""
        self._repository = repository
        self._timeout = timeout
        self._spooled = spooled
        self._known: OrderedDict[str, _Known] = OrderedDict()

    def made(self, session_id: str, metadata: Mapping[str, str]) -> None:
        """The session was just made."""
        self._keep(session_id, _fields.decode(metadata[METADATA]) if METADATA in metadata else {}, math.inf)

    async def of(self, session_id: str) -> Fields | None:
        """By the name of the parameter; empty: its clients choose. None: it cannot be known while the database is away, and
        calls go on all the same. Raises `StoreUnavailable` where they do not: there is no spool."""
        known = self._known.get(session_id)
        if known is not None and time.monotonic() < known.until:
            return known.fields
        # Looked at before the store is: what leaves the spool meanwhile is in the store.
        if self._spooled is not None and (self._spooled.away or self._spooled.holds_session(session_id)):
            return None if known is None else known.fields
        try:
            await self._read(session_id)
        except StoreUnavailable:
            if self._spooled is None:
                raise
            return None if known is None else known.fields
        return self._known[session_id].fields

    async def _read(self, session_id: str) -> None:
        try:
            async with asyncio.timeout(self._timeout):
                session = await asyncio.to_thread(self._repository.session, session_id)
        except NotFound:
            session = None
        except TimeoutError as error:
            raise StoreUnavailable(f"the store did not answer within {self._timeout:g} s") from error
        except DBAPIError as error:
            raise StoreUnavailable(f"the store cannot be read: {reason(error)}") from error
        if session is not None and session.origin == _ON_PURPOSE:
            self.made(session_id, dict(session.metadata))
        elif session_id not in self._known or self._known[session_id].until < math.inf:
            # Its calls make it, or did, with nothing forced. It may have been made on purpose here in the meantime.
            self._keep(session_id, {}, time.monotonic() + _FRESH_S)

    def _keep(self, session_id: str, forced: Fields, until: float) -> None:
        self._known[session_id] = _Known(forced, until)
        if len(self._known) > _KEPT:
            self._known.popitem(last=False)


def force(asking: Asking, forced: Fields | None) -> None:
    """Asks with these parameters; what the client asked for instead is among the losses, and so is that they are not known."""
    if forced is None:
        asking.losses.append(Loss("sampling", "the database is away: what the session was made with is not known"))
    if not forced:
        return
    asked = asking.request.fields
    for name in forced:
        for own in _LIMITS if name == "max_tokens" else (name,):
            before = asked.pop(own, None)
            if before is not None and bytes(before) != bytes(forced[name]):
                said, meant = bytes(before)[:40].decode(errors="replace"), bytes(forced[name]).decode()
                asking.losses.append(Loss(own, f"the session is sampled with {meant}, not {said}"))
    asked.update(forced)
    asking.request = asking.request.resampled()
