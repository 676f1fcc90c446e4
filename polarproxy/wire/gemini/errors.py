"""Errors in the shape of Google's APIs. Source: AIP-193 and the table of `google.rpc.Code`."""

from __future__ import annotations

import msgspec

KEEPALIVE = None
"""Nothing may be sent to fill a silence: the SDK of Gemini CLI never gets past a comment in a stream."""

_STATUS = {
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    405: "UNIMPLEMENTED",
    408: "DEADLINE_EXCEEDED",
    409: "ABORTED",
    429: "RESOURCE_EXHAUSTED",
    499: "CANCELLED",
    501: "UNIMPLEMENTED",
    502: "UNAVAILABLE",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
    529: "UNAVAILABLE",
}


def encode_error(status: int, message: str) -> bytes:
    """The body of an error with this HTTP status; the message word for word."""
    name = _STATUS.get(status, "INVALID_ARGUMENT" if status < 500 else "INTERNAL")
    return msgspec.json.encode({"error": {"code": status, "message": message, "status": name}})
