"""Finding the end of a turn in renderings of the engine's chat template.

Three renderings are compared that are the same but for a few words:

    anchor   [head][turn that says zebra][next message says zebra]
    other    [head][turn that says quick][next message says zebra]
    whole    [head][turn that says zebra][the rest of the conversation]

Anchor and other have the same tokens from the end of the turn's words on. Anchor and whole have the same tokens up to the
words of the next message. What the template puts between a turn and the next message is where the two overlap.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from polarproxy.model import FallbackReason

if TYPE_CHECKING:
    from polarproxy.model import TokenIds


@dataclass(frozen=True, slots=True)
class Overlap:
    """What the template puts after the words of a turn, whatever these and the next message say."""

    start: int
    """First token after the turn's words."""
    stop: int
    """First token that depends on what the next message says."""


def common_prefix(left: TokenIds, right: TokenIds) -> int:
    """How many tokens two sequences begin with alike."""
    return _alike(left, right, 1)


def common_suffix(left: TokenIds, right: TokenIds) -> int:
    """How many tokens two sequences end with alike."""
    return _alike(left, right, -1)


def _alike(left: TokenIds, right: TokenIds, step: int) -> int:
    count = min(len(left), len(right))
    differ = np.flatnonzero(left.array[::step][:count] != right.array[::step][:count])
    return int(differ[0]) if differ.size else count


def end_of_words(anchor: TokenIds, other: TokenIds) -> int | None:
    """Where in `anchor` the words of the turn end. None: the template does not show them."""
    return None if anchor == other else len(anchor) - common_suffix(anchor, other)


def overlap(head: TokenIds, anchor: TokenIds, other: TokenIds, whole: TokenIds) -> Overlap | FallbackReason:
    """The overlap, counted in tokens of `anchor` and `whole` alike, where these begin with all of `head`."""
    if not (anchor.startswith(head) and whole.startswith(head)):
        return FallbackReason.HEAD_CHANGES
    start = end_of_words(anchor, other)
    if start is None or start < len(head):
        # What tells the two turns apart is not behind what came before them: it is a mark somewhere else.
        return FallbackReason.TURN_HIDDEN
    stop = common_prefix(anchor, whole)
    if stop <= start:
        return FallbackReason.NO_BOUNDARY
    return Overlap(start, stop)


def only_place(ids: TokenIds, token: int, between: Overlap) -> int | None:
    """Where a token stands in an overlap. None: nowhere, or more than once."""
    found = np.flatnonzero(ids.array[between.start : between.stop] == token)
    return between.start + int(found[0]) if found.size == 1 else None
