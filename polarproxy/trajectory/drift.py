"""Drift: prompts that repeat an earlier conversation of their session, but not in its exact tokens.

Nothing is merged or left out for it: such a prompt starts a branch of its own, in its own true context. Here it is found,
named, and shown. A prompt repeats an earlier conversation when it leaves it in the middle of a reply; when it holds a
reply of it, to its end, beyond the place where they part; or when it holds the summary that the model made of it. The head
that sub-agents share, another question after the same history, and side calls are no drift.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from polarproxy.model import CallKind, FinishReason
from polarproxy.trajectory.differences import Difference, Spelling, common, meeting
from polarproxy.trajectory.echoes import TAIL, Echoes, grams
from polarproxy.trajectory.retold import CONVERSATIONS, Retold
from polarproxy.trajectory.symptoms import classify

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from polarproxy.model import TokenIds
    from polarproxy.trajectory.forest import Forest, Node
    from polarproxy.trajectory.retold import Told
    from polarproxy.trajectory.symptoms import DriftClass

_SUMMARIES = frozenset({CallKind.COMPACTION, CallKind.SUMMARY})
_QUOTED, _QUOTED_RUN = 0.5, 4
"""How much of a summary must stand in a prompt for it to be there, told by runs of so many tokens."""
BEFORE, AFTER = 8, 16
"""Tokens of a window, on either side of where it differs."""


@dataclass(frozen=True, slots=True)
class Window:
    """The tokens around a difference, on one side of it."""

    before: TokenIds
    """The last tokens that are the same."""
    changed: TokenIds
    """Those that differ; the first of them, when they are many."""
    after: TokenIds
    """Some of those behind them."""


@dataclass(frozen=True, slots=True)
class Drift:
    """A call that repeats an earlier one, but not exactly."""

    call_id: str
    ordinal: int
    drift_class: DriftClass
    earlier_call_id: str
    """The call whose prompt and reply it repeats."""
    position: int
    """The first token that differs, counted from the start of both."""
    here: Window
    there: Window


def find_drifts(forest: Forest, texts: Mapping[int, bytes]) -> tuple[Drift, ...]:
    """Every drift of a session, by arrival. `texts` gives the bytes of token ids as far as they are known."""
    echoes = Echoes(forest)
    session = _Session(forest, echoes, Retold.of(forest, echoes), tuple(_summaries(forest)), Spelling(texts))
    found: list[Drift] = []
    for place, node in enumerate(forest.nodes):
        first_choice = not place or forest.nodes[place - 1].captured is not node.captured
        if first_choice and node.captured.kind in CONVERSATIONS and node.shared < len(node.prompt):
            difference = session.difference(place)
            if difference is not None:
                found.append(_drift(difference))
    return tuple(found)


def by_class(drifts: Iterable[Drift]) -> dict[str, int]:
    """How many calls drifted, by class."""
    return dict(sorted(Counter(drift.drift_class.value for drift in drifts).items()))


def compare(forest: Forest, earlier: Node, later: Node, texts: Mapping[int, bytes]) -> Drift | None:
    """How the P ⊕ C of one completion differs from that of an earlier one, which stands in `forest`. None: one begins the
    other, so that they differ in nothing."""
    whole = replace(later, prompt=later.context)
    edit = _edit(whole, earlier)
    if edit.position == min(len(whole.prompt), earlier.stop):
        return None
    return _drift(
        Difference(
            later=whole,
            earlier=earlier,
            position=edit.position,
            removed=edit.removed,
            inserted=edit.inserted,
            replies_from=_replies_from(forest, Echoes(forest), earlier),
            sampled=earlier.start <= edit.position,
            summary=False,
            spelling=Spelling(texts),
        )
    )


@dataclass(frozen=True, slots=True)
class _Session:
    """A forest, and what is looked up in it."""

    forest: Forest
    echoes: Echoes
    retold: Retold
    summaries: tuple[int, ...]
    """Places of the summaries that the model made of conversations."""
    spelling: Spelling

    def difference(self, place: int) -> Difference | None:
        """How this completion's prompt differs from what it repeats. None: it repeats it exactly, or nothing."""
        nodes, node = self.forest.nodes, self.forest.nodes[place]
        inside = _left_inside(self.forest, place)
        # At its first token it may leave a reply that was thrown away, and tell a later one again.
        begun = any(nodes[other].start < node.shared for other in inside)
        told = None if begun else self.retold.earlier(place)
        summary = None if inside or node.parent is not None else self._summarised(place, told)
        one = summary if told is None or summary is not None else told.place
        others = inside if one is None or one < max(inside, default=0) else [one]
        if not others:
            return None
        # Of several replies that it leaves at the same token, it tells the one again that it comes back to soonest.
        edits = {other: _edit(node, nodes[other]) for other in others}
        other = min(others, key=lambda other: (edits[other].size, -other))
        return Difference(
            later=node,
            earlier=nodes[other],
            position=edits[other].position,
            removed=edits[other].removed,
            inserted=edits[other].inserted,
            replies_from=0 if inside else _replies_from(self.forest, self.echoes, nodes[other]),
            sampled=bool(inside),
            summary=summary is not None,
            spelling=self.spelling,
        )

    def _summarised(self, place: int, told: Told | None) -> int | None:
        """The youngest earlier summary of which most stands in this prompt.

        Of a conversation that keeps its last turns: made after those, and standing before them. One that a tool result holds
        stands behind the reply that asked for it, and one that was there when the reply was sampled is older.
        """
        oldest, stop = (-1, None) if told is None else (told.place, told.stop)
        earlier = [other for other in self.summaries if oldest < other < place]
        if not earlier:
            return None
        quoting = grams(self.forest.nodes[place].prompt.array[:stop], _QUOTED_RUN)
        for other in reversed(earlier):
            summary = self.forest.nodes[other].completion.token_ids
            if np.isin(grams(summary.array[:-1], _QUOTED_RUN), quoting).mean() >= _QUOTED:
                return other
        return None


def _summaries(forest: Forest) -> Iterator[int]:
    """Places of the summaries that are long enough to be recognised."""
    for place, node in enumerate(forest.nodes):
        if node.captured.kind in _SUMMARIES and len(node.completion.token_ids) > TAIL:
            yield place


@dataclass(frozen=True, slots=True)
class _Edit:
    position: int
    removed: TokenIds
    inserted: TokenIds

    @property
    def size(self) -> int:
        return len(self.removed) + len(self.inserted)


def _edit(later: Node, earlier: Node) -> _Edit:
    """What one has and the other has not, from the first token that differs to where they run together again."""
    position = common(later.prompt, earlier.context)
    there, here = earlier.context.cut(position), later.prompt.cut(position)
    ended = earlier.completion.finish_reason in (FinishReason.STOP, FinishReason.TOOL_CALLS)
    removed, inserted = meeting(there.array, here.array, ended=ended) or (len(there), len(here))
    return _Edit(position, there.cut(0, removed), here.cut(0, inserted))


def _left_inside(forest: Forest, place: int) -> list[int]:
    """Earlier completions whose reply this prompt leaves in the middle, or at its first token."""
    node = forest.nodes[place]
    told = 0 if node.parent is None else forest.nodes[node.parent].stop
    if node.shared == told:
        return []
    return [other for other in node.beyond if forest.nodes[other].start <= node.shared < forest.nodes[other].stop]


def _replies_from(forest: Forest, echoes: Echoes, earlier: Node) -> int:
    """Where the first reply begins in this completion's context."""
    context, first = earlier.context, earlier.start
    for echo in echoes.first(context.array):
        sampled = forest.nodes[echo.place].completion.token_ids
        whole = context.cut(max(0, echo.stop - len(sampled)), echo.stop) == sampled
        first = min(first, echo.stop - (len(sampled) if whole else TAIL))
    return max(0, first)


def _drift(difference: Difference) -> Drift:
    call, earlier = difference.later.captured.call, difference.earlier.captured.call
    return Drift(
        call_id=call.call_id,
        ordinal=call.ordinal,
        drift_class=classify(difference),
        earlier_call_id=earlier.call_id,
        position=difference.position,
        here=_window(difference.later.prompt, difference.position, len(difference.inserted)),
        there=_window(difference.earlier.context, difference.position, len(difference.removed)),
    )


def _window(tokens: TokenIds, position: int, changed: int) -> Window:
    shown = min(changed, AFTER)
    return Window(
        before=tokens.cut(max(0, position - BEFORE), position),
        changed=tokens.cut(position, position + shown),
        after=tokens.cut(position + shown, position + AFTER),
    )
