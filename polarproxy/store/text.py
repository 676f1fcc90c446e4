"""Text as anybody may have written it, in columns that do not take every character.

PostgreSQL has no U+0000 in text, and no encoding writes half a surrogate pair. Either is kept as U+001A and four
hexadecimal digits, and so is U+001A itself: what is read is what was written, in both databases alike.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec
from sqlalchemy import String, TypeDecorator

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from sqlalchemy import Dialect

_HARD = re.compile("[\x00\x1a\ud800-\udfff]")
_ESCAPED = re.compile("\x1a([0-9a-f]{4})")
_IN_JSON = "\\u001a"
"""How JSON writes U+001A; it stands in the JSON of pairs that hold something escaped."""

_pairs = msgspec.json.Decoder(tuple[tuple[str, str], ...])
_texts = msgspec.json.Decoder(list[str])


def escape(text: str) -> str:
    """The text without the characters that a column may not take."""
    # Nearly all texts are printable, and that is cheap to see.
    return text if text.isprintable() else _HARD.sub(lambda found: f"\x1a{ord(found[0]):04x}", text)


def unescape(text: str) -> str:
    """The text that was given to `escape`."""
    return text if "\x1a" not in text else _ESCAPED.sub(lambda found: chr(int(found[1], 16)), text)


def encode_pairs(pairs: Iterable[tuple[str, str]]) -> str:
    """Pairs of any texts as one JSON array."""
    pairs = tuple(pairs)
    try:
        encoded = msgspec.json.encode(pairs).decode()
    except UnicodeEncodeError:
        encoded = _IN_JSON
    if _IN_JSON not in encoded:
        return encoded
    return msgspec.json.encode([(escape(left), escape(right)) for left, right in pairs]).decode()


def decode_pairs(text: str) -> tuple[tuple[str, str], ...]:
    """The pairs that were given to `encode_pairs`; raises `msgspec.DecodeError` for anything else."""
    pairs = _pairs.decode(text)
    if _IN_JSON not in text:
        return pairs
    return tuple((unescape(left), unescape(right)) for left, right in pairs)


def encode_texts(texts: Iterable[str]) -> str:
    """Any texts as one JSON array."""
    return msgspec.json.encode([escape(text) for text in texts]).decode()


def decode_texts(text: str) -> tuple[str, ...]:
    """The texts that were given to `encode_texts`; raises `msgspec.DecodeError` for anything else."""
    return tuple(unescape(each) for each in _texts.decode(text))


class AnyText(TypeDecorator[str]):
    """A text column for any text."""

    impl = String
    cache_ok = True

    def bind_processor(self, dialect: Dialect) -> Callable[[Any], Any]:
        """Bound values are escaped; None stays None."""
        return _bound

    def result_processor(self, dialect: Dialect, coltype: object) -> Callable[[Any], Any]:
        """Values that are read are as they were given; None stays None."""
        return _read


def _bound(value: str | None) -> str | None:
    return value if value is None or value.isprintable() else escape(value)


def _read(value: str | None) -> str | None:
    return None if value is None else unescape(value)
