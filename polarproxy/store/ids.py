"""Names for new sessions and calls: unique without asking anyone, and sorting by time."""

from __future__ import annotations

import random
import time

_RANDOM_BITS = 64


def new_id(prefix: str) -> str:
    """`prefix` and 27 hexadecimal digits: 44 bits of milliseconds, 64 random bits. It is a name and no secret."""
    return f"{prefix}{time.time_ns() // 1_000_000:011x}{random.getrandbits(_RANDOM_BITS):016x}"
