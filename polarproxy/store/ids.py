"""Names for new sessions and calls: unique without asking anyone, and sorting roughly by time."""

from __future__ import annotations

import secrets
import time

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_TIME_CHARS, _RANDOM_CHARS = 9, 14


def _base32(number: int, length: int) -> str:
    return "".join(_ALPHABET[number >> 5 * place & 31] for place in reversed(range(length)))


def new_id(prefix: str) -> str:
    """`prefix` and 23 characters: 45 bits of milliseconds, 70 random bits."""
    now = time.time_ns() // 1_000_000
    return prefix + _base32(now, _TIME_CHARS) + _base32(secrets.randbits(5 * _RANDOM_CHARS), _RANDOM_CHARS)
