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

    msgspec hands out values as views of the text that they were decoded from, so their address tells their place. Raises
    `BadReply` when it does not, instead of cutting somewhere else.
    """
    view = memoryview(part)
    start = _address(view) - _address(whole)
    stop = start + len(view)
    # Compared as bytes: a memoryview would be compared item by item.
    if start < 0 or not whole.startswith(bytes(view), start):
        raise BadReply("a value of the engine's reply cannot be found in it")
    return start, stop


def nulled(whole: bytes, parts: Iterable[msgspec.Raw]) -> bytes:
    """The text with each of these values replaced by `null`; all else is as it was."""
    pieces: list[bytes] = []
    at = 0
    for start, stop in sorted(place_of(whole, part) for part in parts):
        pieces += (whole[at:start], b"null")
        at = stop
    return b"".join((*pieces, whole[at:]))
