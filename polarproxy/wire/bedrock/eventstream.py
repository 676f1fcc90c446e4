"""The binary framing of AWS event streams (`application/vnd.amazon.eventstream`).

A message is, in network byte order: its length (u32), the length of its headers (u32), the CRC32 of these 8 bytes, the
headers, the payload, and the CRC32 of all before. A header is the length of its name (u8), its name, its type (u8) and
its value; strings (type 7) have a length (u16). Source: Smithy, "Event stream specification".
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING
from zlib import crc32

from polarproxy.errors import BadReply

if TYPE_CHECKING:
    from collections.abc import Mapping

CONTENT_TYPE = "application/vnd.amazon.eventstream"
_PRELUDE = struct.Struct("!III")
_LENGTHS = struct.Struct("!II")
_CRC = struct.Struct("!I")
_FRAME = _PRELUDE.size + _CRC.size
_MOST = (24 << 20) + (128 << 10) + _FRAME
"""Longest message that AWS's own clients take."""
_STRING = 7
_COUNTED = 6
"""Bytes, counted as strings are."""
_SIZES = {0: 0, 1: 0, 2: 1, 3: 2, 4: 4, 5: 8, 8: 8, 9: 16}
"""Size of a header's value by its type: true, false, integers, timestamp, UUID."""


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a stream."""

    headers: Mapping[str, str]
    """Those that are strings; the others mean nothing to this API."""
    payload: bytes


def encode_message(message: Message) -> bytes:
    """A message as its bytes."""
    return frame(encode_headers(message.headers), message.payload)


def encode_headers(headers: Mapping[str, str]) -> bytes:
    """Headers as their bytes, which are the same for all events of a kind."""
    return b"".join(_encode_header(name, value) for name, value in headers.items())


def frame(headers: bytes, payload: bytes) -> bytes:
    """A message of headers that are bytes already."""
    lengths = _LENGTHS.pack(_FRAME + len(headers) + len(payload), len(headers))
    data = b"".join((lengths, _CRC.pack(crc32(lengths)), headers, payload))
    return data + _CRC.pack(crc32(data))


def _encode_header(name: str, value: str) -> bytes:
    text = value.encode()
    key = name.encode()
    return struct.pack("!B", len(key)) + key + struct.pack("!BH", _STRING, len(text)) + text


class MessageSplitter:
    """Cuts a byte stream into messages; any cutting of the stream gives the same ones."""

    def __init__(self) -> None:
        self._data = bytearray()

    def feed(self, chunk: bytes) -> list[Message]:
        """The messages that `chunk` completes, in order; raises `BadReply` for bytes that are damaged."""
        self._data += chunk
        messages = []
        while (length := self._length()) is not None and len(self._data) >= length:
            messages.append(_decode_message(bytes(self._data[:length])))
            del self._data[:length]
        return messages

    def rest(self) -> bytes:
        """Bytes after the last complete message; not empty when the stream was cut inside a message."""
        return bytes(self._data)

    def _length(self) -> int | None:
        """Length of the next message. None: not known yet."""
        if len(self._data) < _PRELUDE.size:
            return None
        length, headers, checksum = _PRELUDE.unpack_from(self._data)
        if crc32(self._data[:8]) != checksum:
            raise BadReply("the beginning of an event stream message is damaged: its checksum does not match")
        if not _FRAME + headers <= length <= _MOST:
            raise BadReply(f"an event stream message cannot have {length} bytes, {headers} of them headers")
        return int(length)


def _decode_message(data: bytes) -> Message:
    if crc32(data[:-4]) != _CRC.unpack(data[-4:])[0]:
        raise BadReply("an event stream message is damaged: its checksum does not match")
    _, length, _ = _PRELUDE.unpack_from(data)
    end = _PRELUDE.size + length
    try:
        headers = _decode_headers(data[_PRELUDE.size : end])
    except (struct.error, UnicodeDecodeError, KeyError) as error:
        raise BadReply("the headers of an event stream message cannot be read") from error
    return Message(headers, data[end:-4])


def _decode_headers(data: bytes) -> dict[str, str]:
    headers, at = {}, 0
    while at < len(data):
        name_end = at + 1 + data[at]
        name = data[at + 1 : name_end].decode()
        (kind,) = struct.unpack_from("!B", data, name_end)
        at = name_end + 1
        if kind in (_STRING, _COUNTED):
            (size,) = struct.unpack_from("!H", data, at)
            at += 2
        else:
            size = _SIZES[kind]
        value = data[at : at + size]
        at += size
        if len(value) != size:
            raise struct.error("a value is cut off")
        if kind == _STRING:
            headers[name] = value.decode()
    return headers
