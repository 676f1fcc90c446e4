"""Messages in a row as one, where a dialect cuts them finer than the canonical form does."""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from polarproxy.wire.neutral.request import Message


def joined(messages: Iterable[Message], roles: Collection[str]) -> tuple[Message, ...]:
    """The messages; those of one of these roles that follow each other are one. Takes time in proportion to the parts."""
    together: list[Message] = []
    for role, run in groupby(messages, key=lambda message: message.role):
        row = list(run)
        if role in roles and len(row) > 1:
            row = [replace(row[0], parts=tuple(part for message in row for part in message.parts))]
        together.extend(row)
    return tuple(together)
