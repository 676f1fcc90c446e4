"""Images, sounds and documents inside request bodies, stored once each however often a harness sends them.

A harness sends its whole history with every call, pictures included, and several rollouts of a task send the same ones. In
the stored body a long base64 text is replaced by the digest of what it encodes, between NUL bytes, which no JSON text holds;
putting it back gives the body byte for byte, or the text was not taken out.
"""

from __future__ import annotations

import binascii
import re
from base64 import b64decode, b64encode
from typing import TYPE_CHECKING

from polarproxy.errors import StoreDamaged
from polarproxy.store import codec

if TYPE_CHECKING:
    from collections.abc import Callable

_LEAST = 1024
_LONG = re.compile(rb"[A-Za-z0-9+/]{%d,}={0,2}" % _LEAST)
_OTHERS = (b'"', b"\\", b"-", b"_", b".", b",")
_TAKEN = re.compile(rb"\0(\0|[0-9a-f]{32}\0)")
"""What stands for a blob, or for a NUL byte of the body's own."""


def take_out(body: bytes) -> tuple[bytes, dict[bytes, bytes]]:
    """The body without its blobs, and the blobs by their digests."""
    blobs: dict[bytes, bytes] = {}
    escaped = body.replace(b"\0", b"\0\0")
    if not _may_hold_one(escaped):
        return escaped, blobs

    def taken(match: re.Match[bytes]) -> bytes:
        text = match[0]
        try:
            blob = b64decode(text, validate=True)
        except binascii.Error:
            return text
        if b64encode(blob) != text:
            return text
        digest = codec.digest(blob)
        blobs[digest] = blob
        return b"\0%b\0" % digest.hex().encode()

    return _LONG.sub(taken, escaped), blobs


def _may_hold_one(body: bytes) -> bool:
    """Whether any stretch is long enough and has no character in it that no base64 text has. Most bodies are text, of
    which this looks at one character in a thousand; the expression would look at each."""
    at = 0
    while at + _LEAST <= len(body):
        stop = at + _LEAST
        last = body.rfind(b" ", at, stop)
        if last < 0:
            last = max(body.rfind(other, at, stop) for other in _OTHERS)
        if last < 0:
            return True
        at = last + 1
    return False


def put_back(body: bytes, blob: Callable[[bytes], bytes | None]) -> bytes:
    """The body as it was; `blob` gives what has a digest. Raises `StoreDamaged` when one is missing or another."""

    def given(match: re.Match[bytes]) -> bytes:
        if match[1] == b"\0":
            return b"\0"
        digest = _digest(match)
        found = blob(digest)
        if found is None or codec.digest(found) != digest:
            raise StoreDamaged(f"blob {digest.hex()} is missing or damaged")
        return b64encode(found)

    return _TAKEN.sub(given, body)


def held(body: bytes) -> set[bytes]:
    """The digests of the blobs that were taken out of a body, given as it is stored."""
    return {_digest(match) for match in _TAKEN.finditer(body) if match[1] != b"\0"}


def _digest(match: re.Match[bytes]) -> bytes:
    return bytes.fromhex(match[1][:32].decode())
