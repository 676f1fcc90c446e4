"""Halves of characters in JSON, which a harness leaves behind when it cuts a text in the middle of an emoji.

JSON writes such a character as two escapes, `\\ud83d\\ude00`. One of them alone is no text (RFC 8259, section 8.2); strict
parsers refuse the whole body for it, lenient ones read U+FFFD.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, TypeVar

from polarproxy.errors import BadRequest
from polarproxy.model import Loss

if TYPE_CHECKING:
    from collections.abc import Callable

_T = TypeVar("_T")

_ESCAPE = re.compile(
    rb"""\\(?:
        u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}  # both halves
        | (?P<half>u[dD][89a-fA-F][0-9a-fA-F]{2})
        | .  # any other escape, of a backslash too
    )""",
    re.VERBOSE | re.DOTALL,
)

HALVES = Loss("body", "halves of characters stand in it; read as U+FFFD")


def whole_characters(body: bytes) -> bytes | None:
    """A JSON text with U+FFFD for every half of a character. None: it holds none."""
    if b"\\ud" not in body and b"\\uD" not in body:
        return None
    mended = _ESCAPE.sub(_whole, body)
    return None if mended == body else mended


def read_leniently(read: Callable[[bytes], _T], body: bytes) -> tuple[_T, bool]:
    """What `read` makes of a body, and whether halves of characters had to be replaced for it; raises `BadRequest`."""
    try:
        return read(body), False
    except BadRequest:
        whole = whole_characters(body)
        if whole is None:
            raise
        return read(whole), True


def _whole(escape: re.Match[bytes]) -> bytes:
    return escape[0] if escape["half"] is None else b"\\ufffd"
