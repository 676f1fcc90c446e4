"""Whose word counts on where a prompt comes from: the request's, if it is trusted; else its session's; else the proxy's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polarproxy.errors import BadRequest
from polarproxy.model import Loss, PromptMode
from polarproxy.proxy.address import offered_keys

if TYPE_CHECKING:
    from polarproxy.proxy.parts import Parts
    from polarproxy.proxy.visit import Visit

HEADER = "x-polarproxy-prompts"

NOT_HEEDED = Loss(HEADER, "it counts only with a signed session key or the admin key; it was not heeded")


def asked_mode(parts: Parts, visit: Visit) -> PromptMode | Loss | None:
    """What the request itself asks for. None: nothing. A loss: it asks, and may not.

    Raises `BadRequest` when a trusted request asks for what there is not.
    """
    said = visit.headers.get(HEADER)
    if said is None:
        return None
    if not _is_trusted(parts, visit):
        return NOT_HEEDED
    try:
        return PromptMode(said.strip().lower())
    except ValueError as error:
        raise BadRequest(f"{HEADER} must be one of {', '.join(PromptMode)}, not {said!r}") from error


def _is_trusted(parts: Parts, visit: Visit) -> bool:
    """Whoever may make sessions may say how their prompts are made, and so may the holder of a session's own key."""
    if visit.address.signed or parts.settings.control_open:
        return True
    return any(map(parts.signer.is_admin, offered_keys(visit.headers, visit.query)))
