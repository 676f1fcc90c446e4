"""Bodies of this API for the tests, and the short way to read one."""

from __future__ import annotations

from typing import Any

import msgspec

from polarproxy.wire.gemini.request import decode_request, encode_request
from polarproxy.wire.neutral.request import Decoded, Message, Request

HELLO: dict[str, Any] = {"role": "user", "parts": [{"text": "hello"}]}


def decoded(**members: Any) -> Decoded:
    """The request of these members; `contents` says hello unless it is given."""
    body = msgspec.json.encode({"contents": [HELLO]} | members)
    return decode_request(body, model="gemini-3.8-flash", stream=True)


def read(**members: Any) -> Request:
    """The same, of which nothing may be lost."""
    found = decoded(**members)
    assert found.losses == ()
    return found.request


def messages(*contents: Any) -> tuple[Message, ...]:
    """The messages of these contents, of which nothing may be lost."""
    return read(contents=list(contents)).messages


def wheres(found: Decoded) -> list[str]:
    """The places of what was lost."""
    return [loss.where for loss in found.losses]


def request_of(*conversation: Message) -> Request:
    """A request that says just this."""
    return Request("m", conversation)


def decode_body(body: bytes) -> Any:
    """A body as plain values."""
    return msgspec.json.decode(body)


def written_and_read(*conversation: Message) -> tuple[Message, ...]:
    """The conversation after a way into this dialect and back."""
    return decode_request(encode_request(request_of(*conversation)).body, model="m", stream=False).request.messages
