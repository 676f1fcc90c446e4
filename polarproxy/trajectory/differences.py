"""Where a prompt stops repeating an earlier conversation, and how both go on from there."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING

import numpy as np

from polarproxy.trajectory.echoes import grams

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from polarproxy.model import TokenIds
    from polarproxy.trajectory.forest import Node

_SAME = 4
"""Tokens in a row that say that two sequences run together again."""
_NEAR, _FAR = 1 << 10, 1 << 16
"""Tokens in which they are looked for, first and at last."""
UNKNOWN = "\uffff"
"""Stands for a token whose text is not known; no text holds this character."""


@dataclass(frozen=True, slots=True)
class Spelling:
    """The texts of token ids, as far as they are known."""

    texts: Mapping[int, bytes]

    def whole(self, ids: TokenIds) -> str | None:
        """The text of these tokens; parts of characters are U+FFFD. None: that of some token is not known."""
        parts = [self.texts.get(token) for token in ids]
        return None if None in parts else b"".join(filter(None, parts)).decode("utf-8", "replace")

    def most(self, ids: TokenIds) -> str:
        """The text of these tokens, with U+FFFF for each of which it is not known."""
        unknown = UNKNOWN.encode()
        return b"".join(self.texts.get(token, unknown) for token in ids).decode("utf-8", "replace")


@dataclass(frozen=True, slots=True)
class Difference:
    """The first difference of a prompt from an earlier P ⊕ C."""

    later: Node
    earlier: Node
    position: int
    """Tokens that both begin with."""
    removed: TokenIds
    """Tokens of the earlier one from `position` on that the later one has not; to its end when they never meet again."""
    inserted: TokenIds
    """Tokens of the later one in their place."""
    replies_from: int
    """Where the first reply begins in the earlier one: what stands before is the head."""
    sampled: bool
    """Whether the tokens that differ were sampled (or are the first of a reply)."""
    summary: bool
    """Whether the later prompt holds a summary that the model made of the earlier conversation."""
    spelling: Spelling

    @property
    def in_head(self) -> bool:
        """Whether they differ before the first reply, and run together again before it."""
        return self.position < self.replies_from and self._meets_at <= self.replies_from

    @property
    def ends(self) -> bool:
        """Whether the earlier one ends where they differ: they never run together again."""
        return self._meets_at == len(self.earlier.context)

    @property
    def _meets_at(self) -> int:
        return self.position + len(self.removed)

    @property
    def removed_text(self) -> str | None:
        """None: not known."""
        return self.spelling.whole(self.removed)

    @property
    def inserted_text(self) -> str | None:
        """None: not known."""
        return self.spelling.whole(self.inserted)

    @property
    def apart(self) -> tuple[str, str]:
        """The texts of both sides without what they begin and end with alike: a vocabulary may have one token for a full
        stop and another for one with a line break. U+FFFF stands for each token whose text is not known."""
        return apart(self.spelling.most(self.removed), self.spelling.most(self.inserted))

    def before(self, tokens: int) -> str:
        """The text of that many tokens before the difference."""
        return self.spelling.most(self.later.prompt.cut(max(0, self.position - tokens), self.position))

    def after(self, tokens: int) -> str:
        """The text of that many tokens after it, where both run together again."""
        start = self.position + len(self.inserted)
        return self.spelling.most(self.later.prompt.cut(start, start + tokens))


def apart(left: str, right: str) -> tuple[str, str]:
    """Two texts without what they begin and end with alike; a token of unknown text is like no other."""
    start = _alike(left, right)
    left, right = left[start:], right[start:]
    stop = _alike(left[::-1], right[::-1])
    return left[: len(left) - stop], right[: len(right) - stop]


def _alike(left: str, right: str) -> int:
    pairs = zip(left, right, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1] != UNKNOWN, pairs))


def common(left: TokenIds, right: TokenIds) -> int:
    """How many tokens both begin with."""
    size = min(len(left), len(right))
    same = left.array[:size] == right.array[:size]
    return size if same.all() else int(np.argmin(same))


def common_end(left: TokenIds, right: TokenIds) -> int:
    """How many tokens both end with."""
    size = min(len(left), len(right))
    same = left.array[len(left) - size :] == right.array[len(right) - size :]
    return size if same.all() else int(np.argmin(same[::-1]))


def meeting(there: NDArray[np.int32], here: NDArray[np.int32], *, ended: bool) -> tuple[int, int] | None:
    """How many tokens of each to leave out so that both go on alike, the fewest in all. None: they never do.

    They are alike again with four tokens in a row, or with all that is left of `there`, where that has `ended` of itself.
    """
    for far in (_NEAR, _FAR):
        _, left, right = np.intersect1d(grams(there[:far], _SAME), grams(here[:far], _SAME), return_indices=True)
        # What lies farther on cannot be nearer than this.
        if len(left) and (left + right).min() < far - _SAME:
            best = int(np.argmin(left + right))
            return int(left[best]), int(right[best])
    for size in range(min(_SAME - 1, len(there)) if ended else 0, 0, -1):
        found = np.flatnonzero(grams(here[:_FAR], size) == grams(there[-size:], size))
        if len(found):
            return len(there) - size, int(found[0])
    return None
