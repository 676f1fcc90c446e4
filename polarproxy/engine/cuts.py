"""Replacing values of a JSON text where they stand, without touching a byte of the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from polarproxy.errors import BadReply

if TYPE_CHECKING:
    from collections.abc import Iterable

    import msgspec


def _address(data: bytes | memoryview) -> int:
    return int(np.frombuffer(data, np.uint8).__array_interface__["data"][0])


def place_of(whole: bytes, part: msgspec.Raw) -> tuple[int, int]:
    """Where a value that was decoded from `whole` begins and ends in it.

    msgspec hands out values as views of the text that they were decoded from, so their address tells their place: what
    lies elsewhere cannot have an address in between. Raises `BadReply` then, instead of cutting somewhere else.
    """
    return _place(_address(whole), len(whole), part)


def _place(beginning: int, size: int, part: msgspec.Raw) -> tuple[int, int]:
    view = memoryview(part)
    start = _address(view) - beginning
    stop = start + len(view)
    if not 0 <= start < stop <= size:
        raise BadReply("a value of the engine's reply cannot be found in it")
    return start, stop


def nulled(whole: bytes, parts: Iterable[msgspec.Raw]) -> bytes:
    """The text with each of these values replaced by `null`; all else is as it was."""
    beginning, size = _address(whole), len(whole)
    pieces: list[bytes] = []
    at = 0
    for start, stop in sorted(_place(beginning, size, part) for part in parts):
        pieces += (whole[at:start], b"null")
        at = stop
    pieces.append(whole[at:])
    return b"".join(pieces)
