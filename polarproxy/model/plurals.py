"""Numbers of things in sentences for people."""

from __future__ import annotations


def counted(number: int, one: str, many: str | None = None) -> str:
    """`1 call`, `2 calls`. `many` None: `one` with an s at its end."""
    return f"{number} {one if number == 1 else many or one + 's'}"
