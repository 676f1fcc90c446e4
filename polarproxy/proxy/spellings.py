"""Which spellings of tokens are stored already, so that looking for new ones costs next to nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from polarproxy.errors import BadReply

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from polarproxy.engine.capture import Capture
    from polarproxy.model import Completion

_MAX_ID = 1 << 22
"""Ids beyond any vocabulary are not spelled."""
_NONE = np.zeros(0, np.bool_)


class Spellings:
    """For one model: a flag per token id."""

    def __init__(self) -> None:
        self._known: NDArray[np.bool_] = _NONE

    def new(self, completions: tuple[Completion, ...], capture: Capture) -> dict[int, bytes]:
        """The spellings in a reply that were not seen before; each is given once."""
        unseen = {token for token in capture.prompt_texts if not self._has(token)}
        for completion in completions:
            unseen.update(self._unseen(completion.token_ids.array))
        if not unseen:
            return {}
        try:
            texts = capture.token_texts(unseen)
        except (BadReply, ValueError):
            # Spellings are for people; no call is lost for one that cannot be read.
            return {}
        for token in texts:
            self._known[token] = True
        return texts

    def _has(self, token: int) -> bool:
        return (
            bool(self._known[token]) if token < len(self._known) else self._unseen(np.asarray([token], np.int32)) == []
        )

    def _unseen(self, ids: NDArray[np.int32]) -> list[int]:
        if not ids.size:
            return []
        largest = int(np.maximum.reduce(ids))
        if largest >= _MAX_ID:
            ids = ids[ids < _MAX_ID]
            return self._unseen(ids)
        if largest >= len(self._known):
            self._known = np.concatenate([self._known, np.zeros(largest + 1, np.bool_)])
        known = self._known.take(ids)
        return [] if np.logical_and.reduce(known) else list(ids[~known].tolist())
