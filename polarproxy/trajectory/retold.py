"""Which earlier conversation a prompt tells again in other tokens: the one that it goes on with.

A prompt ends with the last reply of its conversation and what came then, so of the replies that stand in it the last ones
tell whose it is. Several may seem to: agents end their replies alike, a conversation that was told again before has left its
old replies behind, and every reply of a conversation stands in its later prompts.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING

import numpy as np

from polarproxy.model import CallKind
from polarproxy.trajectory.differences import common, common_end
from polarproxy.trajectory.echoes import TAIL, grams

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from polarproxy.model import TokenIds
    from polarproxy.trajectory.echoes import Echoes
    from polarproxy.trajectory.forest import Forest

CONVERSATIONS = frozenset({CallKind.MAIN, CallKind.SUBAGENT, CallKind.FALLBACK, CallKind.UNKNOWN})
"""Kinds of calls that go on with something; the others ask about it. A summary in a user's message may end like a reply."""
_COMPARED = 4
"""Conversations that are compared with a prompt as a whole."""
_STRETCH = 32
"""Tokens of both that differ where nothing but a nonce, a tool or a sentence does."""
_RUN = 4
"""Tokens in a row that tell whether a piece of a prompt stands in a conversation."""
_LONG = 1 << 12
"""Tokens of which not all runs need be looked at."""


@dataclass(frozen=True, slots=True)
class Told:
    """An earlier completion that a prompt tells again."""

    place: int
    stop: int
    """Where its reply ends in the prompt."""
    alike: int
    """Tokens up to there that end its context too."""


@dataclass(frozen=True, slots=True)
class Retold:
    """A forest, and where its replies stand in prompts."""

    forest: Forest
    echoes: Echoes
    conversations: NDArray[np.bool_]
    """For each node, whether it may be told again."""

    @classmethod
    def of(cls, forest: Forest, echoes: Echoes) -> Retold:
        kinds = [node.captured.kind in CONVERSATIONS for node in forest.nodes]
        return cls(forest, echoes, np.array(kinds, np.bool_))

    def earlier(self, place: int) -> Told | None:
        """The earlier completion that this one's prompt tells again beyond what it shares. None: none.

        Of several that of the last reply in the prompt, if it differs in one short stretch alone; else the one that holds
        most of the prompt up to its own reply.
        """
        nodes, prompt = self.forest.nodes, self.forest.nodes[place].prompt
        candidates = self._tips(self._candidates(place))[:_COMPARED]
        if len(candidates) < 2:
            return candidates[0] if candidates else None
        for one in takewhile(lambda one: one.stop == candidates[0].stop, candidates):
            context = nodes[one.place].context
            if common(prompt, context) + one.alike + _STRETCH >= min(one.stop, len(context)):
                return one
        return max(candidates, key=lambda one: _held(prompt.cut(0, one.stop), nodes[one.place].context))

    def _candidates(self, place: int) -> list[Told]:
        """One for each completion, where it ends most like the prompt; those that end last in the prompt come first."""
        nodes, node = self.forest.nodes, self.forest.nodes[place]
        first = next(at for at in range(place, -1, -1) if not at or nodes[at - 1].captured is not node.captured)

        def allowed() -> NDArray[np.bool_]:
            others = self.conversations[:first].copy()
            others[self.forest.ancestors(place)[1:]] = False
            return others

        start = max(0, node.shared - TAIL + 1)
        best: dict[int, Told] = {}
        for echo in self.echoes.last(node.prompt.array[start:], allowed):
            stop = start + echo.stop
            alike = common_end(node.prompt.cut(0, stop), nodes[echo.place].context)
            if echo.place not in best or alike > best[echo.place].alike:
                best[echo.place] = Told(echo.place, stop, alike)
        return sorted(best.values(), key=lambda one: (one.stop, one.alike, one.place), reverse=True)

    def _tips(self, candidates: list[Told]) -> list[Told]:
        """Those from which no other goes on that ends later in the prompt."""
        oldest = min((one.place for one in candidates), default=0)
        later: dict[int, int] = {}
        for one in candidates:
            above = self.forest.nodes[one.place].parent
            while above is not None and above >= oldest and above not in later:
                later[above] = one.stop
                above = self.forest.nodes[above].parent
        return [one for one in candidates if later.get(one.place, 0) <= one.stop]


def _held(told: TokenIds, context: TokenIds) -> int:
    """How much of what is told stands in a context, in runs of tokens."""
    runs = _some(told, told)
    return int(np.isin(runs, _some(context, told)).sum())


def _some(ids: TokenIds, told: TokenIds) -> NDArray[np.uint64]:
    """Runs of tokens: all, or where much is told an eighth, chosen by what stands in them."""
    runs = grams(ids.array, _RUN)
    return runs if len(told) < _LONG else runs[runs >> np.uint64(61) == 0]
