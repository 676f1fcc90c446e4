"""Errors in OpenAI's own shape, and what keeps a silent stream alive.

Source: OpenAI API reference, "Error codes"; the error object of the Responses API.
"""

from __future__ import annotations

import msgspec

KEEPALIVE: bytes | None = b": keep-alive\n\n"
"""A comment, which every client of server-sent events passes over."""

_TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
_CODES = {401: "invalid_api_key", 404: "not_found", 409: "conflict", 429: "rate_limit_exceeded"}
_OVERFLOW = "maximum context length"
PREVIOUS_NOT_FOUND = "Previous response with id"
"""How the message begins for a `previous_response_id` that names no response that is kept; clients then send it all."""


def error_code(status: int, message: str) -> str | None:
    """The word by which a program tells an error: harnesses look for `context_length_exceeded`. None: there is none."""
    if _OVERFLOW in message:
        return "context_length_exceeded"
    if message.startswith(PREVIOUS_NOT_FOUND):
        return "previous_response_not_found"
    return "server_error" if status >= 500 else _CODES.get(status)


class ErrorObject(msgspec.Struct):
    """An error as a body, or a frame of a WebSocket, holds it."""

    message: str
    type: str
    param: str | None
    code: str | None


class _Body(msgspec.Struct):
    error: ErrorObject


def error_object(status: int, message: str, code: str | None = None, param: str | None = None) -> ErrorObject:
    """The error; its `code` is made of the status and the message unless one is given."""
    kind = "server_error" if status >= 500 else _TYPES.get(status, "invalid_request_error")
    if param is None and message.startswith(PREVIOUS_NOT_FOUND):
        param = "previous_response_id"
    return ErrorObject(message, kind, param, code or error_code(status, message))


def encode_error(status: int, message: str, code: str | None = None, param: str | None = None) -> bytes:
    """The body of an answer with an error status."""
    return msgspec.json.encode(_Body(error_object(status, message, code, param)))


def client_status(status: int) -> int:
    """The status that this API's clients expect: the same."""
    return status
