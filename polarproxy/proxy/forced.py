"""Sampling parameters that a session was made with: every request of it is sent with them, whatever its client asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from polarproxy.errors import BadRequest
from polarproxy.model import FORCEABLE, Loss

if TYPE_CHECKING:
    from collections.abc import Mapping

    from polarproxy.proxy.asking import Asking
    from polarproxy.wire.chat.fields import Fields

_LIMITS = ("max_tokens", "max_completion_tokens")


def read_forced(given: Mapping[str, float | int]) -> str:
    """As metadata; raises `BadRequest` for a name that is no sampling parameter."""
    unknown = sorted(given.keys() - set(FORCEABLE))
    if unknown:
        raise BadRequest(f"sampling: there is no parameter {unknown[0]!r}; there are {', '.join(FORCEABLE)}")
    return msgspec.json.encode(given).decode()


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
