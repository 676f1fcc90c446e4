"""Errors of Anthropic Messages. Source: Anthropic API reference, "Errors" and "Streaming messages"."""

from __future__ import annotations

import msgspec

KEEPALIVE: bytes | None = b'event: ping\ndata: {"type":"ping"}\n\n'
"""What every client of this dialect passes over while it waits."""

_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
    529: "overloaded_error",
}


NO_THREADS = "thread: conversations are not kept here; send the whole history, without this member"
"""Of a request that leaves its history to the server. The Python SDK's tool runner then sends it whole."""


class _Details(msgspec.Struct):
    error_code: str


_DETAILS = {NO_THREADS: _Details("thread_unsupported_request")}


class _Detail(msgspec.Struct, omit_defaults=True):
    type: str
    message: str
    details: _Details | None = None


class _Error(msgspec.Struct, tag="error"):
    error: _Detail


def encode_error(status: int, message: str) -> bytes:
    """The body of an error, and the data of an `error` event. Other statuses below 500 are `invalid_request_error`."""
    kind = _TYPES.get(status, "invalid_request_error" if status < 500 else "api_error")
    return msgspec.json.encode(_Error(_Detail(kind, message, _DETAILS.get(message))))


def client_status(status: int) -> int:
    """The status that a client of this dialect expects: overload is 529."""
    return 529 if status == 503 else status
