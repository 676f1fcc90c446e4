"""Which replies stand in a sequence of tokens, whatever stands before them: found by their last tokens.

A reply ends with its end-of-turn token, so its last tokens stand in a later prompt where that prompt tells the reply again,
and not where only its words are quoted: a summary in a user's message, a sub-agent's task that was an argument of a tool.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from polarproxy.model import TokenIds
    from polarproxy.trajectory.forest import Forest

TAIL = 8
"""Tokens that two different replies hardly have in common at their ends; a shorter reply counts with what led to it."""
_FACTORS = np.cumprod(np.full(TAIL, 0x9E3779B97F4A7C15, np.uint64), dtype=np.uint64)
"""Powers of an odd number, so that the same tokens in another order have another hash."""


def grams(ids: NDArray[np.int32], size: int) -> NDArray[np.uint64]:
    """A hash of each run of `size` tokens, uint64 `[len − size + 1]`; empty when there is none."""
    if len(ids) < size:
        return np.zeros(0, np.uint64)
    runs = sliding_window_view(ids.astype(np.uint64) + np.uint64(1), size)
    return runs @ _FACTORS[:size]


@dataclass(frozen=True, slots=True)
class Echo:
    """A reply that stands in some sequence."""

    place: int
    """Of the completion in the forest."""
    stop: int
    """Where it ends in that sequence."""


class Echoes:
    """The last tokens of every completion of a forest."""

    def __init__(self, forest: Forest) -> None:
        places, tails = [], []
        for place, node in enumerate(forest.nodes):
            tail = _tail(node.prompt, node.completion.token_ids)
            if tail is not None:
                places.append(place)
                tails.append(tail)
        hashes = np.concatenate([grams(tail, TAIL) for tail in tails]) if tails else np.zeros(0, np.uint64)
        order = np.argsort(hashes, kind="stable")
        self._hashes = hashes[order]
        self._places = np.asarray(places, np.int64)[order]

    def find(self, ids: NDArray[np.int32]) -> list[Echo]:
        """The completions whose last tokens stand in `ids`, by where they end, then by place."""
        if not len(self._hashes):
            return []
        asked = grams(ids, TAIL)
        left = np.searchsorted(self._hashes, asked)
        known = np.flatnonzero(self._hashes[np.minimum(left, len(self._hashes) - 1)] == asked)
        right = np.searchsorted(self._hashes, asked[known], "right")
        return [
            Echo(int(place), int(at) + TAIL)
            for at, first, last in zip(known, left[known], right, strict=True)
            for place in self._places[first:last]
        ]


def _tail(prompt: TokenIds, completion: TokenIds) -> NDArray[np.int32] | None:
    """The last tokens of a P ⊕ C. None: it samples nothing, or is too short to tell."""
    if not len(completion) or len(prompt) + len(completion) < TAIL:
        return None
    if len(completion) >= TAIL:
        return completion.array[-TAIL:]
    return np.concatenate([prompt.array[len(completion) - TAIL :], completion.array])
