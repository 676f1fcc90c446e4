"""Errors as AWS tells them: the message in the body, the name of the error in a header.

Names and statuses: the service model of `bedrock-runtime` (2023-09-30). AWS's SDKs go by the name, and send again on
429, 500, 502, 503 and 504 (`botocore`: five attempts in its `legacy` mode, three in `standard`).
"""

from __future__ import annotations

import msgspec

from polarproxy.wire.bedrock.eventstream import Message, encode_message

KEEPALIVE: bytes | None = None
"""An event stream has nothing that means nothing: unknown events reach the client's loop."""
ERROR_HEADER = "x-amzn-ErrorType"
_STATUSES = {401: 403, 502: 503, 504: 408, 529: 503}
_NAMES = {
    403: "AccessDeniedException",
    404: "ResourceNotFoundException",
    408: "ModelTimeoutException",
    409: "ConflictException",
    424: "ModelErrorException",
    429: "ThrottlingException",
    503: "ServiceUnavailableException",
}
_IN_STREAM = {
    429: "throttlingException",
    500: "internalServerException",
    503: "serviceUnavailableException",
}


class _Error(msgspec.Struct, omit_defaults=True):
    message: str
    original_status: int | None = msgspec.field(default=None, name="originalStatusCode")
    original_message: str | None = msgspec.field(default=None, name="originalMessage")


def client_status(status: int) -> int:
    """The status that this API has for ours: it knows no 401, 502, 504 or 529."""
    return _STATUSES.get(status, status)


def encode_error(status: int, message: str) -> bytes:
    """The body of an error; what kind it is stands in `error_headers`."""
    return msgspec.json.encode(_Error(message))


def error_headers(status: int) -> dict[str, str]:
    """The header by which SDKs tell one error from another."""
    code = client_status(status)
    other = "ValidationException" if code < 500 else "InternalServerException"
    return {ERROR_HEADER: _NAMES.get(code, other)}


def encode_stream_error(status: int, message: str) -> bytes:
    """The exception that ends a stream that has begun. An engine that broke off is an error of the model's stream."""
    name = "validationException" if status < 500 and status != 429 else "modelStreamErrorException"
    name = _IN_STREAM.get(status, name)
    error = _Error(message, status, message) if name == "modelStreamErrorException" else _Error(message)
    headers = {":exception-type": name, ":content-type": "application/json", ":message-type": "exception"}
    return encode_message(Message(headers, msgspec.json.encode(error)))
