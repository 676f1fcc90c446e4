"""The WebSocket transport: one JSON message a frame, several responses on one socket.

Source: OpenAI documentation, "WebSocket mode", and the client events of the API reference. `stream` says nothing here,
every response is streamed. A client that wants several at once names each by a `stream_id`, and each frame repeats it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from polarproxy.errors import BadRequest
from polarproxy.model import Usage
from polarproxy.wire.neutral.reading import read
from polarproxy.wire.neutral.reply import Begin, Final, Finished
from polarproxy.wire.responses.reading import members
from polarproxy.wire.responses.stream import Encoder
from polarproxy.wire.sse import EventSplitter, event_data

if TYPE_CHECKING:
    from polarproxy.wire.neutral.reply import Envelope

_CREATE = b'"response.create"'
_WHERE = "the message"


def read_create(frame: bytes) -> bytes:
    """The body of the request that a `response.create` is, always one for a stream; raises `BadRequest` for all else."""
    fields = read(members, frame, _WHERE)
    kind = bytes(fields.pop("type", b"null"))
    if kind != _CREATE:
        raise BadRequest(f"{_WHERE}: type {kind.decode()} is not understood; response.create is")
    return msgspec.json.encode(fields | {"stream": msgspec.Raw(b"true")})


def of_events(events: bytes, stream_id: str | None = None) -> list[bytes]:
    """The frames that whole server-sent events are; comments are none."""
    data = [event_data(event) for event in EventSplitter().feed(events)]
    tail = b"" if stream_id is None else b',"stream_id":' + msgspec.json.encode(stream_id)
    return [frame[:-1] + tail + b"}" for frame in data if frame is not None]


class _ErrorBody(msgspec.Struct):
    error: msgspec.Raw


class _ErrorFrame(msgspec.Struct, tag_field="type", tag="error", omit_defaults=True):
    status: int
    error: msgspec.Raw
    headers: dict[str, str] = {}
    stream_id: str | None = None


_error_body = msgspec.json.Decoder(_ErrorBody)


def error_frame(status: int, body: bytes, retry_after: str | None = None, stream_id: str | None = None) -> bytes:
    """The frame for what an HTTP answer of this status and body (see `encode_error`) would be.

    `retry_after`: the header of that name. Raises `BadRequest` when the body is no error.
    """
    headers = {} if retry_after is None else {"retry-after": retry_after}
    return msgspec.json.encode(_ErrorFrame(status, read(_error_body, body, "the error").error, headers, stream_id))


def prewarmed(envelope: Envelope, stream_id: str | None = None) -> list[bytes]:
    """The frames that answer `generate: false`: a response with nothing in it, whose id can be continued from."""
    encoder = Encoder(envelope)
    events = b"".join(encoder.feed(piece) for piece in (Begin(), Finished("stop"), Final(Usage(0, 0))))
    return of_events(events, stream_id)
