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


class Places:
    """Where the values stand that msgspec left as bytes when it decoded one text.

    It hands them out as views of the text, so their address tells their place: what lies elsewhere cannot have an address
    in between.
    """

    def __init__(self, whole: bytes) -> None:
        self.whole = whole
        self._beginning = _address(whole)

    def of(self, part: msgspec.Raw) -> tuple[int, int]:
        """Where a value begins and ends; raises `BadReply` when it is none of this text."""
        view = memoryview(part)
        start = _address(view) - self._beginning
        stop = start + len(view)
        if not 0 <= start < stop <= len(self.whole):
            raise BadReply("a value of the engine's reply cannot be found in it")
        return start, stop

    def nulled(self, places: Iterable[tuple[int, int]]) -> bytes:
        """The text with the values at these places replaced by `null`; all else is as it was."""
        pieces: list[bytes] = []
        at = 0
        for start, stop in sorted(places):
            pieces += (self.whole[at:start], b"null")
            at = stop
        pieces.append(self.whole[at:])
        return b"".join(pieces)


def place_of(whole: bytes, part: msgspec.Raw) -> tuple[int, int]:
    """Where a value that was decoded from `whole` begins and ends in it; raises `BadReply`."""
    return Places(whole).of(part)


def nulled(whole: bytes, parts: Iterable[msgspec.Raw]) -> bytes:
    """The text with each of these values replaced by `null`; all else is as it was. Raises `BadReply`."""
    places = Places(whole)
    return places.nulled(places.of(part) for part in parts)
