"""Answers of our own, in the shape of the client's dialect."""

from __future__ import annotations

from dataclasses import dataclass

from polarproxy.errors import (
    BadExport,
    BadKey,
    BadReply,
    BadRequest,
    BatchTaken,
    EngineTimeout,
    EngineUnreachable,
    ModelUnknown,
    NotFound,
    NotOffered,
    Paused,
    PolarproxyError,
    SessionClosed,
    StoreConflict,
    StoreUnavailable,
    TooLarge,
    UpstreamInUse,
)
from polarproxy.model import Dialect
from polarproxy.proxy.dialects import ERRORS
from polarproxy.proxy.server.response import Response

RETRY_AFTER_S = 2
_FINAL = frozenset((409, 501))
"""Asked again, it would be refused again; SDKs ask again unless they are told."""

_STATUS: tuple[tuple[type[PolarproxyError], int], ...] = (
    (BadRequest, 400),
    (BadExport, 400),
    (BadKey, 401),
    (NotFound, 404),
    (SessionClosed, 409),
    (StoreConflict, 409),
    (BatchTaken, 409),
    (UpstreamInUse, 409),
    (TooLarge, 413),
    (NotOffered, 501),
    (Paused, 503),
    (StoreUnavailable, 503),
    (ModelUnknown, 503),
    (BadReply, 502),
    (EngineUnreachable, 502),
    (EngineTimeout, 504),
)


def status_of(error: PolarproxyError) -> int:
    """The HTTP status that an error has for a client."""
    return next((status for kind, status in _STATUS if isinstance(error, kind)), 500)


@dataclass(frozen=True, slots=True)
class Refusal:
    """An error on its way to a client."""

    status: int
    message: str
    retry_after: str | None = None
    """Seconds. None: 503 says when to come back by itself, others do not."""

    def said(self, dialect: Dialect) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body in the client's dialect."""
        errors = ERRORS[dialect]
        head = {"Content-Type": "application/json", **errors.headers(self.status)}
        retry_after = self.retry_after or (str(RETRY_AFTER_S) if self.status == 503 else None)
        if retry_after is not None:
            head["Retry-After"] = retry_after
        if self.status in _FINAL:
            head["x-should-retry"] = "false"
        return errors.status(self.status), head, errors.encode(self.status, self.message)


def refusal(error: PolarproxyError) -> Refusal:
    """The refusal for an error that was raised on purpose."""
    return Refusal(status_of(error), str(error))


def refuse(status: int, message: str, dialect: Dialect = Dialect.CHAT) -> Response:
    """An error answer; 503 says when to come back."""
    return Response(*Refusal(status, message).said(dialect))


def refuse_for(error: PolarproxyError, dialect: Dialect = Dialect.CHAT) -> Response:
    """The answer for an error that was raised on purpose."""
    return refuse(status_of(error), str(error), dialect)
