"""Token ids out of JSON arrays, without a Python object for each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import msgspec
import numpy as np

from polarproxy.engine.integers import read_integers
from polarproxy.errors import BadReply
from polarproxy.model import TokenIds

JsonText: TypeAlias = bytes | memoryview | msgspec.Raw
"""One JSON value, or what is taken for one."""

_MAX_ID = int(np.iinfo(np.int32).max)
_UNSIGNED = np.dtype(np.uint64)
_INT32 = np.dtype("<i4")
_BLANKS = b" \t\r\n"


@dataclass(frozen=True, slots=True)
class ParsedIds:
    """Token ids together with the text that they were read from."""

    text: bytes
    """What stood between the brackets of the JSON array."""
    ids: TokenIds


def parse_ids(raw: JsonText, earlier: ParsedIds | None = None) -> ParsedIds:
    """A JSON array of token ids; raises `BadReply` when it is anything else.

    When the array begins with the very text of an `earlier` one, as the next prompt of a conversation does, only the rest
    is parsed.
    """
    whole = memoryview(raw)
    if len(whole) < 2 or whole[0] != ord("[") or whole[-1] != ord("]"):
        raise BadReply(f"expected an array of token ids, got {bytes(whole[:40])!r}")
    text = bytes(whole[1:-1])
    if not text.strip(_BLANKS):
        return ParsedIds(text, TokenIds())
    if earlier is None or not earlier.ids or not text.startswith(earlier.text):
        return ParsedIds(text, _parse(whole))
    rest = text[len(earlier.text) :]
    if not rest:
        return earlier
    # A comma must follow: otherwise the last number of the earlier array is only the beginning of a longer one.
    return ParsedIds(text, earlier.ids + _parse(b"[%b]" % rest[1:]) if rest.startswith(b",") else _parse(whole))


def _parse(array: bytes | memoryview) -> TokenIds:
    """One id or more, between brackets."""
    try:
        ids = read_integers(array)
    except ValueError as error:
        raise BadReply(f"an array of token ids holds something else: {error}") from error
    if not ids.size:
        raise BadReply("nothing follows the last comma of an array of token ids")
    # Read as unsigned, what is negative is too large.
    if np.maximum.reduce(ids.view(_UNSIGNED)) > _MAX_ID:
        raise BadReply(f"token ids must lie in 0..2**31-1, found {ids.min()}..{ids.max()}")
    return TokenIds(ids.astype(_INT32).tobytes())


def decode_ids(raw: JsonText) -> TokenIds:
    """A JSON array of token ids; raises `BadReply` when it is anything else."""
    return parse_ids(raw).ids
