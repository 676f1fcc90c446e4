"""Bytes of tokens, logprobs and bodies as they lie in the database.

Ids: little-endian int32, zstd level 1; a short sequence in 18 bits an id (`packing`). Logprobs: little-endian float32, not
compressed (it would not pay). Digests: XXH3-128 of the bytes as they were before; they find and check, and are never the
only evidence that two sequences are equal.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import xxhash
import zstandard

from polarproxy.errors import StoreDamaged
from polarproxy.model import TOKEN_BYTES, TokenIds
from polarproxy.store.packing import MARK, pack, pack_all, unpack

if TYPE_CHECKING:
    from collections.abc import Sequence

_LEVEL = 1
_MAX_BYTES = 1 << 30
_MANY = 6
"""So many are packed together in less time than one by one."""
_SHORT = 1024 * TOKEN_BYTES
"""From here on a compressor saves more than packing does."""


class _PerThread(threading.local):
    """A compressor must not be shared between threads."""

    def __init__(self) -> None:
        self.compressor = zstandard.ZstdCompressor(level=_LEVEL)
        self.decompressor = zstandard.ZstdDecompressor()


_zstd = _PerThread()


def digest(*parts: bytes) -> bytes:
    """16 bytes, of the parts as if they were one."""
    if len(parts) == 1:
        return xxhash.xxh3_128_digest(parts[0])
    whole = xxhash.xxh3_128()
    for part in parts:
        whole.update(part)
    return whole.digest()


def compress(data: bytes) -> bytes:
    """One zstd frame that knows its own length."""
    return _zstd.compressor.compress(data)


def decompress(data: bytes) -> bytes:
    """Raises `StoreDamaged` when the frame is broken."""
    try:
        return _zstd.decompressor.decompress(data, max_output_size=_MAX_BYTES)
    except zstandard.ZstdError as error:
        raise StoreDamaged(f"a compressed value cannot be read: {error}") from error


def encode_ids(raw: bytes) -> bytes:
    """The stored form of token ids, which are given as little-endian int32."""
    packed = pack(raw) if len(raw) <= _SHORT else None
    return compress(raw) if packed is None else packed


def encode_all_ids(many: Sequence[bytes]) -> list[bytes]:
    """Each of these as `encode_ids` has it."""
    if len(many) < _MANY:
        return [encode_ids(raw) for raw in many]
    short = [raw for raw in many if len(raw) <= _SHORT]
    packed = iter(pack_all(short) or map(encode_ids, short))
    return [next(packed) if len(raw) <= _SHORT else compress(raw) for raw in many]


def decode_ids(data: bytes) -> TokenIds:
    """Raises `StoreDamaged` when the bytes are not whole token ids."""
    raw = unpack(data) if data.startswith(MARK) else decompress(data)
    if raw is None:
        raise StoreDamaged(f"stored token ids take {len(data)} bytes, and no number of packed ones does")
    if len(raw) % TOKEN_BYTES:
        raise StoreDamaged(f"stored token ids take {len(raw)} bytes, which is not a multiple of {TOKEN_BYTES}")
    return TokenIds(raw)
