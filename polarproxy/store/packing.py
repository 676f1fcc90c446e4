"""Short sequences of token ids in 18 bits each, which holds every vocabulary of today but a few.

A compressor needs some hundred ids before it saves more than that, and twice the time whatever it saves. A packed value is
the byte 18, then of all ids the lowest bytes, the second bytes, and the two bits above them, four ids to a byte.
"""

from __future__ import annotations

MARK = b"\x12"
"""No compressed frame begins with it."""
_TWO_BITS = b"\0\1\2\3"
_SHIFTED = tuple(bytes(value >> shift & 3 for value in range(256)) for shift in (0, 2, 4, 6))


def pack(raw: bytes) -> bytes | None:
    """Of ids as little-endian int32. None: one of them takes more than 18 bits."""
    high = raw[2::4]
    if high.translate(None, _TWO_BITS) or raw[3::4].strip(b"\0"):
        return None
    first, second, third, fourth = (int.from_bytes(high[start::4], "little") for start in range(4))
    packed = first | second << 2 | third << 4 | fourth << 6
    return b"".join((MARK, raw[0::4], raw[1::4], packed.to_bytes((len(high) + 3) // 4, "little")))


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
