"""How alike two texts are: the cosine of their counts of token n-grams."""

from __future__ import annotations

import re
from collections import Counter
from math import sqrt
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    Similarity = Callable[[str, str], float]
    """From 0 (nothing in common) to 1 (the same)."""

_TOKEN = re.compile(r"\w+|[^\w\s]")


def words(text: str) -> list[str]:
    """The tokens of a text: words, and single signs; spaces do not matter."""
    return _TOKEN.findall(text)


def ngrams(text: str, longest: int = 3) -> Counter[tuple[str, ...]]:
    """How often each run of 1 to `longest` tokens occurs."""
    tokens = words(text)
    return Counter(
        tuple(tokens[start : start + size]) for size in range(1, longest + 1) for start in range(len(tokens) - size + 1)
    )


def counts_cosine(left: Mapping[tuple[str, ...], int], right: Mapping[tuple[str, ...], int]) -> float:
    """The cosine of two counts. One without anything is like nothing, not even like another such: 0."""
    if len(left) > len(right):
        left, right = right, left
    dot = sum(count * right.get(gram, 0) for gram, count in left.items())
    norms = sqrt(sum(count * count for count in left.values()) * sum(count * count for count in right.values()))
    return min(1.0, dot / norms) if norms else 0.0


def ngram_cosine(left: str, right: str) -> float:
    """The cosine of the 1- to 3-gram counts of two texts, from 0 to 1; 0 when one is empty."""
    return counts_cosine(ngrams(left), ngrams(right))


def by_counts() -> Similarity:
    """As `ngram_cosine`, counting each text once for as long as it is used."""
    known: dict[str, Counter[tuple[str, ...]]] = {}

    def counted(text: str) -> Counter[tuple[str, ...]]:
        if text not in known:
            known[text] = ngrams(text)
        return known[text]

    return lambda left, right: counts_cosine(counted(left), counted(right))


def by_embedding(embed: Callable[[str], Sequence[float]]) -> Similarity:
    """The similarity by any embedding: its cosine, negative ones as 0. Each text is embedded once."""
    known: dict[str, NDArray[np.float64]] = {}

    def vector(text: str) -> NDArray[np.float64]:
        if text not in known:
            found = np.asarray(embed(text), dtype=np.float64)
            norm = float(np.linalg.norm(found))
            known[text] = found / norm if norm else found
        return known[text]

    return lambda left, right: float(np.clip(vector(left) @ vector(right), 0.0, 1.0)) if left and right else 0.0
