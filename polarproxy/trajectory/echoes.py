"""Which replies stand in a sequence of tokens, whatever stands before them: found by their last tokens.

A reply ends with its end-of-turn token, so its last tokens stand in a later prompt where that prompt tells the reply again,
and not where only its words are quoted: a summary in a user's message, a sub-agent's task that was an argument of a tool.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from polarproxy.model import TokenIds
    from polarproxy.trajectory.forest import Forest

TAIL = 8
"""Tokens that two different replies hardly have in common at their ends; a shorter reply counts with what led to it."""
_END = 32
"""Tokens by which replies with the same last ones are told apart."""
_STOPS, _EACH = 8, 4
"""Places near an end of a sequence at which replies are looked for, and how many of those that end alike are named there."""
_FACTORS = np.cumprod(np.full(TAIL, 0x9E3779B97F4A7C15, np.uint64), dtype=np.uint64)
"""Powers of an odd number, so that the same tokens in another order have another hash."""


def grams(ids: NDArray[np.int32], size: int) -> NDArray[np.uint64]:
    """A hash of each run of `size` tokens, uint64 `[len − size + 1]`; empty when there is none."""
    if len(ids) < size:
        return np.zeros(0, np.uint64)
    # A product with each run of the ids, without making a view of the runs, which takes longer than short ones do.
    return np.correlate(ids.astype(np.uint64) + np.uint64(1), _FACTORS[:size])


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
        self._ends = np.full((len(forest.nodes), _END), -1, np.int32)
        for place, node in enumerate(forest.nodes):
            end = _end(node.prompt, node.completion.token_ids)
            self._ends[place, _END - len(end) :] = end
            if len(node.completion.token_ids) and len(end) >= TAIL:
                places.append(place)
                tails.append(end[-TAIL:])
        hashes = np.concatenate([grams(tail, TAIL) for tail in tails]) if tails else np.zeros(0, np.uint64)
        order = np.argsort(hashes, kind="stable")
        self._hashes = hashes[order]
        self._places = np.asarray(places, np.int64)[order]

    def first(self, ids: NDArray[np.int32]) -> list[Echo]:
        """The completions that end first in `ids`; of several that end at one place the few that are most like it."""
        return self._some(ids, self._found(ids), lambda: np.ones(len(self._ends), np.bool_))

    def last(self, ids: NDArray[np.int32], allowed: Callable[[], NDArray[np.bool_]]) -> list[Echo]:
        """The completions that end last in `ids`, the last first, of those that are `allowed`: bool for each place from the
        first on; later ones are not. It is asked for when there are any, which is seldom. Of several that end at one place the
        few that are most like it, then the youngest."""
        return self._some(ids, self._found(ids)[::-1], allowed)

    def _some(
        self,
        ids: NDArray[np.int32],
        found: Sequence[tuple[int, NDArray[np.int64]]],
        allowing: Callable[[], NDArray[np.bool_]],
    ) -> list[Echo]:
        if not found:
            return []
        echoes: list[Echo] = []
        allowed, stops = allowing(), 0
        for stop, ending in found:
            places = ending[ending < len(allowed)]
            places = places[allowed[places]]
            if len(places):
                echoes += [Echo(place, stop) for place in self._most_alike(ids[max(0, stop - _END) : stop], places)]
                stops += 1
            if stops == _STOPS:
                break
        return echoes

    def _most_alike(self, ids: NDArray[np.int32], places: NDArray[np.int64]) -> list[int]:
        here = np.full(_END, -2, np.int32)
        here[_END - len(ids) :] = ids
        differs = (self._ends[places] != here)[:, ::-1]
        alike = np.where(differs.any(axis=1), differs.argmax(axis=1), _END)
        chosen: list[int] = places[np.lexsort((places, alike))[::-1][:_EACH]].tolist()
        return chosen

    def _found(self, ids: NDArray[np.int32]) -> list[tuple[int, NDArray[np.int64]]]:
        """Where in `ids` completions end, in order, and the places of those that end there, in order."""
        if not len(self._hashes):
            return []
        asked = grams(ids, TAIL)
        left = np.searchsorted(self._hashes, asked)
        known = np.flatnonzero(self._hashes[np.minimum(left, len(self._hashes) - 1)] == asked)
        right = np.searchsorted(self._hashes, asked[known], "right")
        return [
            (int(at) + TAIL, self._places[first:last])
            for at, first, last in zip(known, left[known], right, strict=True)
        ]


def _end(prompt: TokenIds, completion: TokenIds) -> NDArray[np.int32]:
    """The last tokens of a P ⊕ C."""
    missing = _END - len(completion)
    if missing <= 0:
        return completion.array[-_END:]
    return np.concatenate([prompt.array[max(0, len(prompt) - missing) :], completion.array])
