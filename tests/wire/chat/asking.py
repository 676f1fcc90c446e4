"""Chat requests in short, for tests: read from members, and written for an engine."""

import json
from typing import Any

from polarproxy.wire.chat.request import decode_request, encode_request
from polarproxy.wire.neutral.request import Message, Request, Text

HI = (Message("user", (Text("hi"),)),)
PNG = "data:image/png;base64,AAEC"


def body(**members: Any) -> bytes:
    return json.dumps({"messages": [{"role": "user", "content": "hi"}], **members}).encode()


def read(**members: Any) -> Request:
    decoded = decode_request(body(**members))
    assert decoded.losses == ()
    return decoded.request


def lost(**members: Any) -> list[str]:
    return [loss.where for loss in decode_request(body(**members)).losses]


def message(**members: Any) -> tuple[Message, ...]:
    return read(messages=[members]).messages


def engine(request: Request) -> Any:
    return json.loads(encode_request(request).body)


def sent(*messages: Message) -> Any:
    return engine(Request(None, messages))["messages"]


def losses(*messages: Message, **members: Any) -> list[str]:
    return [loss.where for loss in encode_request(Request(None, messages, **members)).losses]
