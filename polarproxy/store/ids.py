"""Names for new sessions and calls: unique without asking anyone, and sorting by time."""

from __future__ import annotations

import secrets
import time

_RANDOM_BYTES = 8


def new_id(prefix: str) -> str:
    """`prefix` and 27 hexadecimal digits: 44 bits of milliseconds, 64 random bits."""
    return f"{prefix}{time.time_ns() // 1_000_000:011x}{secrets.token_hex(_RANDOM_BYTES)}"
