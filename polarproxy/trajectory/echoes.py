"""Which replies stand in a sequence of tokens, whatever stands before them: found by their last tokens.

A reply ends with its end-of-turn token, so its last tokens stand in a later prompt where that prompt tells the reply again,
and not where only its words are quoted: a summary in a user's message, a sub-agent's task that was an argument of a tool.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from polarproxy.model import TokenIds
    from polarproxy.trajectory.forest import Forest

TAIL = 8
"""Tokens that two different replies hardly have in common at their ends; a shorter reply counts with what led to it."""
_FACTOR = 0x9E3779B97F4A7C15


def grams(ids: NDArray[np.int32], size: int) -> NDArray[np.uint64]:
    """A hash of each run of `size` tokens, uint64 `[len − size + 1]`; empty when there is none."""
    count = max(len(ids) - size + 1, 0)
    hashes = np.zeros(count, np.uint64)
    tokens = ids.astype(np.uint64)
    for at in range(size):
        hashes = hashes * np.uint64(_FACTOR) + tokens[at : at + count] + np.uint64(1)
        hashes ^= hashes >> np.uint64(29)
    return hashes


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
        asked = grams(ids, TAIL)
        left, right = np.searchsorted(self._hashes, asked, "left"), np.searchsorted(self._hashes, asked, "right")
        return [
            Echo(int(place), int(at) + TAIL)
            for at in np.flatnonzero(right > left)
            for place in self._places[left[at] : right[at]]
        ]


def _tail(prompt: TokenIds, completion: TokenIds) -> NDArray[np.int32] | None:
    """The last tokens of a P ⊕ C. None: it samples nothing, or is too short to tell."""
    if not len(completion) or len(prompt) + len(completion) < TAIL:
        return None
    if len(completion) >= TAIL:
        return completion.array[-TAIL:]
    return np.concatenate([prompt.array[len(completion) - TAIL :], completion.array])
