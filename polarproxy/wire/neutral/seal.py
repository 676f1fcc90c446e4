"""Reasoning as an opaque token, for dialects whose clients send back a token and not the text.

A token of ours holds the text itself (compressed; nothing is secret), so the reasoning survives a harness that drops the
text, a restart of the proxy, and a session that goes on through another one. It depends on the text alone.
"""

from __future__ import annotations

import binascii
import zlib
from base64 import urlsafe_b64decode, urlsafe_b64encode

_MARK = "polar1-"
_MOST = 1 << 24
"""Longest text that is unsealed, in bytes; a few bytes of a hostile token could unfold to any size."""


def seal(text: str) -> str:
    """The token of a text."""
    return _MARK + urlsafe_b64encode(zlib.compress(text.encode("utf-8", "surrogatepass"), 6)).decode()


def unseal(token: str) -> str | None:
    """The text of a token; None when it is not one of ours, or damaged."""
    if not token.startswith(_MARK):
        return None
    try:
        packed = urlsafe_b64decode(token.removeprefix(_MARK).encode("ascii"))
        inflater = zlib.decompressobj()
        text = inflater.decompress(packed, _MOST)
        return text.decode("utf-8", "surrogatepass") if inflater.eof else None
    except (binascii.Error, zlib.error, UnicodeError):
        return None
