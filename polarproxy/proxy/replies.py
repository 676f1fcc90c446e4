"""Answers of our own, in the shape of the client's dialect."""

from __future__ import annotations

from aiohttp import web

from polarproxy.errors import (
    BadKey,
    BadReply,
    BadRequest,
    EngineTimeout,
    EngineUnreachable,
    NotFound,
    PolarproxyError,
    SessionClosed,
    StoreConflict,
    StoreUnavailable,
)
from polarproxy.wire.chat.fields import encode_error

RETRY_AFTER_S = 2

_STATUS: tuple[tuple[type[PolarproxyError], int], ...] = (
    (BadRequest, 400),
    (BadKey, 401),
    (NotFound, 404),
    (SessionClosed, 409),
    (StoreConflict, 409),
    (StoreUnavailable, 503),
    (BadReply, 502),
    (EngineUnreachable, 502),
    (EngineTimeout, 504),
)


def status_of(error: PolarproxyError) -> int:
    """The HTTP status that an error has for a client."""
    return next((status for kind, status in _STATUS if isinstance(error, kind)), 500)


def refuse(status: int, message: str) -> web.Response:
    """An error answer; 503 says when to come back."""
    headers = {"Retry-After": str(RETRY_AFTER_S)} if status == 503 else None
    return web.Response(
        status=status, body=encode_error(status, message), content_type="application/json", headers=headers
    )


def refuse_for(error: PolarproxyError) -> web.Response:
    """The answer for an error that was raised on purpose."""
    return refuse(status_of(error), str(error))
