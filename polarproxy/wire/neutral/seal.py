"""Reasoning as an opaque token, for dialects whose clients send back a token and not the text.

A token of ours holds the text itself (compressed; nothing is secret), so the reasoning survives a harness that drops the
text, a restart of the proxy, and a session that goes on through another one. It depends on the text alone.

Anybody can make such a token, so what a request unfolds to is bounded by its length: a token is believed only while its
text is at most `_RATIO` times as long as what it packs. A text that would pack better than that is padded when it is
sealed, which costs little: prose packs to a third or a quarter, only repetition packs much better.
"""

from __future__ import annotations

import binascii
import zlib
from base64 import urlsafe_b64decode, urlsafe_b64encode

_MARK = "polar1-"
_RATIO = 4
"""Bytes of text for each byte of a token, before base64."""


def seal(text: str) -> str:
    """The token of a text."""
    said = text.encode("utf-8", "surrogatepass")
    packed = zlib.compress(said, 6)
    least = -(-len(said) // _RATIO)
    return _MARK + urlsafe_b64encode(packed.ljust(least, b"\0")).decode()


def unseal(token: str) -> str | None:
    """The text of a token; None when it is not one of ours, damaged, or longer than any text that was sealed in it."""
    if not token.startswith(_MARK):
        return None
    try:
        packed = urlsafe_b64decode(token.removeprefix(_MARK).encode("ascii"))
        inflater = zlib.decompressobj()
        # One byte more, since the end of the stream is only seen where there is room left.
        text = inflater.decompress(packed, len(packed) * _RATIO + 1)
        whole = inflater.eof and len(text) <= len(packed) * _RATIO
        return text.decode("utf-8", "surrogatepass") if whole else None
    except (binascii.Error, zlib.error, UnicodeError):
        return None
