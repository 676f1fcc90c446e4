"""Errors as vLLM and the OpenAI SDKs write and read them."""

from __future__ import annotations

from typing import Literal

import msgspec

_FAILED = 500

ErrorType = Literal[
    "BadRequestError",
    "AuthenticationError",
    "PermissionDeniedError",
    "NotFoundError",
    "ConflictError",
    "RequestTooLarge",
    "InternalServerError",
    "UpstreamError",
    "UpstreamTimeout",
    "ServiceUnavailable",
]

_TYPES: dict[int, ErrorType] = {
    400: "BadRequestError",
    401: "AuthenticationError",
    403: "PermissionDeniedError",
    404: "NotFoundError",
    409: "ConflictError",
    413: "RequestTooLarge",
    502: "UpstreamError",
    503: "ServiceUnavailable",
    504: "UpstreamTimeout",
}


def encode_error(status: int, message: str) -> bytes:
    """An error body in the shape that vLLM and the OpenAI SDKs use."""
    kind = _TYPES.get(status, "InternalServerError")
    return msgspec.json.encode({"error": {"message": message, "type": kind, "param": None, "code": status}})


class _EngineError(msgspec.Struct):
    message: str = ""
    code: int | str | None = None
    error: msgspec.Raw = msgspec.Raw()
    """The same once more inside, as an answer's body has it."""


def read_error(text: str | bytes) -> tuple[int, str]:
    """Status and message of an error that the engine wrote, with or without `error` around it; the text itself otherwise."""
    raw = text.encode() if isinstance(text, str) else text
    try:
        said = msgspec.json.decode(raw, type=_EngineError)
        if said.error:
            said = msgspec.json.decode(said.error, type=_EngineError)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _FAILED, raw.decode("utf-8", "replace")
    status = said.code if isinstance(said.code, int) and 400 <= said.code < 600 else _FAILED
    return status, said.message or raw.decode("utf-8", "replace")
