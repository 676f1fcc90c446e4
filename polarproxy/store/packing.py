"""Short sequences of token ids in 18 bits each, which holds every vocabulary of today but a few.

A compressor needs some hundred ids before it saves more than that, and twice the time whatever it saves. A packed value is
the byte 18, then of all ids the lowest bytes, the second bytes, and the two bits above them, four ids to a byte.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

MARK = b"\x12"
"""No compressed frame begins with it."""
_TWO_BITS = b"\0\1\2\3"
_FILL = {size: bytes(-size % 16) for size in (0, 4, 8, 12)}
_SHIFTED = tuple(bytes(value >> shift & 3 for value in range(256)) for shift in (0, 2, 4, 6))


def pack(raw: bytes) -> bytes | None:
    """Of ids as little-endian int32. None: one of them takes more than 18 bits."""
    high = raw[2::4]
    if high.translate(None, _TWO_BITS) or raw[3::4].strip(b"\0"):
        return None
    first, second, third, fourth = (int.from_bytes(high[start::4], "little") for start in range(4))
    packed = first | second << 2 | third << 4 | fourth << 6
    return b"".join((MARK, raw[0::4], raw[1::4], packed.to_bytes((len(high) + 3) // 4, "little")))


def pack_all(many: Sequence[bytes]) -> list[bytes] | None:
    """Of each of these what `pack` makes of it, in a third of the time. None: an id of one of them takes more than 18 bits."""
    # Each begins where four ids begin that share a byte.
    counts = [len(raw) // 4 for raw in many]
    joined = np.frombuffer(b"".join([part for raw in many for part in (raw, _FILL[len(raw) % 16])]), "<u4")
    if joined.max(initial=0) >> 18:
        return None
    # What does not fit into a byte is cut off.
    high = (joined >> 16).astype(np.uint8)
    shared = high[0::4] | high[1::4] << 2 | high[2::4] << 4 | high[3::4] << 6
    planes = joined.astype(np.uint8).tobytes(), (joined >> 8).astype(np.uint8).tobytes(), shared.tobytes()
    packed, start = [], 0
    for count in counts:
        stop = start + count
        packed.append(
            b"".join((MARK, planes[0][start:stop], planes[1][start:stop], planes[2][start // 4 : (stop + 3) // 4]))
        )
        start = -(-stop // 4) * 4
    return packed


def unpack(data: bytes) -> bytes | None:
    """The ids that were given to `pack`. None: nothing that it makes is so long."""
    size = len(data) - len(MARK)
    count = 4 * size // 9
    if size != 2 * count + (count + 3) // 4:
        return None
    start, high = len(MARK), data[len(MARK) + 2 * count :]
    raw = bytearray(4 * count)
    raw[0::4], raw[1::4] = data[start : start + count], data[start + count : start + 2 * count]
    for place, table in enumerate(_SHIFTED):
        raw[2 + 4 * place :: 16] = high.translate(table)[: (count - place + 3) // 4]
    return bytes(raw)
