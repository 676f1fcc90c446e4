"""The prefix forest of a session: every sampled completion, under the one whose tokens its prompt repeats.

`parent(k)` is the earlier-arrived completion *j* with the longest P_j ⊕ C_j that is a prefix of P_k. Candidates are all
completions, wherever they stand. Equal ones are resolved by a rule, then by arrival. Nothing depends on the order in which
calls are handed in.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING

from polarproxy.errors import InvalidValue
from polarproxy.model import CallStatus
from polarproxy.trajectory.lineage import identity
from polarproxy.trajectory.prefix_tree import PrefixTree

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from polarproxy.model import Call, CapturedCall, Completion, TokenIds

    TieRule = Callable[[CapturedCall, CapturedCall], tuple[bool, ...]]
    """Given a call and an earlier one whose tokens it repeats: of several such the one with the least value is its parent."""


def by_lineage(later: CapturedCall, earlier: CapturedCall) -> tuple[bool, ...]:
    """An agent goes on from what it said itself, as its headers tell; then from what reached the client."""
    return (identity(later.call).agent != identity(earlier.call).agent, not earlier.delivered)


@dataclass(frozen=True, slots=True)
class Node:
    """One completion in the forest. Only calls whose prompt ids are known are in it."""

    captured: CapturedCall
    completion: Completion
    prompt: TokenIds
    parent: int | None
    """Place of the parent in the forest. None: a root."""
    shared: int = 0
    """Tokens of the prompt that an earlier P ⊕ C of the session begins with, whether or not all of that one."""
    beyond: tuple[int, ...] = ()
    """Places of earlier completions that share those tokens and go on in another way."""

    @property
    def context(self) -> TokenIds:
        """P ⊕ C."""
        return self.prompt + self.completion.token_ids

    @property
    def start(self) -> int:
        """Where the sampled tokens begin in every exact branch that holds this node."""
        return len(self.prompt)

    @property
    def stop(self) -> int:
        """Where they end."""
        return self.start + len(self.completion.token_ids)


@dataclass(frozen=True)
class Forest:
    """Nodes in order of arrival (and of choice index); a parent stands before its children."""

    nodes: tuple[Node, ...]
    children: tuple[tuple[int, ...], ...]
    """For each node, the places of its children, in order."""
    without_prompt: tuple[CapturedCall, ...]
    """Calls that are no nodes, because their prompt ids are not known or nothing was sampled."""

    @cached_property
    def same_prompt(self) -> Mapping[bytes, Sequence[int]]:
        """For the bytes of each prompt, the places of the nodes that have it, in order."""
        found: dict[bytes, list[int]] = defaultdict(list)
        for place, node in enumerate(self.nodes):
            found[node.prompt.raw].append(place)
        return found

    @cached_property
    def agents(self) -> Sequence[str | None]:
        """For each node the agent that asked, as its headers tell. None: they do not."""
        told: dict[str, str | None] = {}
        for node in self.nodes:
            call = node.captured.call
            if call.call_id not in told:
                told[call.call_id] = identity(call).agent
        return [told[node.captured.call.call_id] for node in self.nodes]

    @cached_property
    def same_question(self) -> Mapping[tuple[bytes, str | None], Sequence[int]]:
        """The same for each prompt and agent."""
        found: dict[tuple[bytes, str | None], list[int]] = defaultdict(list)
        for raw, places in self.same_prompt.items():
            for place in places:
                found[raw, self.agents[place]].append(place)
        return found

    @cached_property
    def last_continued(self) -> Mapping[tuple[bytes, str | None], int]:
        """Of those of each prompt and agent the last one that has children; none where none has."""
        return {
            asked: place for asked, places in self.same_question.items() for place in places if self.children[place]
        }

    @cached_property
    def not_completed(self) -> Sequence[Call]:
        """The calls that failed or were broken off, by arrival."""
        inside = {node.captured.call.call_id: node.captured.call for node in self.nodes}
        calls = [*inside.values(), *(captured.call for captured in self.without_prompt)]
        return sorted((call for call in calls if call.status is not CallStatus.COMPLETED), key=_ordinal)

    def ancestors(self, place: int) -> list[int]:
        """This place and those above it, the root last."""
        path: list[int] = []
        above: int | None = place
        while above is not None:
            path.append(above)
            above = self.nodes[above].parent
        return path


def _ordinal(call: Call) -> int:
    return call.ordinal


class GrowingForest:
    """The forest of a session that still runs: one more call costs one pass over its own tokens.

    A call that arrived before one that is in it already (it took longer), or one of which more has become known, is taken
    in at the next look, which begins anew.
    """

    def __init__(self, prefer: TieRule = by_lineage) -> None:
        self._prefer = prefer
        self._calls: dict[str, CapturedCall] = {}
        self._grower = _Grower(prefer)
        self._stale = False

    def add(self, captured: CapturedCall) -> None:
        """A call of the session, or a known one with what has become known of it since."""
        call = captured.call
        before, self._calls[call.call_id] = self._calls.get(call.call_id), captured
        if before == captured:
            return
        if before is None and not self._stale and self._grower.takes(call):
            self._grower.add(captured)
        else:
            self._stale = True

    def forest(self) -> Forest:
        """The forest of all calls so far; raises `InvalidValue` as `build_forest` does."""
        if self._stale:
            self._grower, self._stale = _grown(self._calls.values(), self._prefer), False
        return self._grower.forest()


class _Grower:
    """Takes calls in order of arrival."""

    def __init__(self, prefer: TieRule) -> None:
        self._prefer = prefer
        self._tree: PrefixTree[int] = PrefixTree()
        self._nodes: list[Node] = []
        self._children: list[list[int]] = []
        self._outside: list[CapturedCall] = []
        self._last: Call | None = None

    def takes(self, call: Call) -> bool:
        """Whether this call may be the next one."""
        last = self._last
        return last is None or (last.ordinal < call.ordinal and last.session_id == call.session_id)

    def add(self, captured: CapturedCall) -> None:
        call = self._last = captured.call
        prompt = call.prompt_token_ids
        if prompt is None or not call.completions:
            self._outside.append(captured)
            return
        known = self._tree.match(prompt)
        parent = self._choose(captured, known.values)
        for completion in sorted(call.completions, key=lambda completion: completion.index):
            place = len(self._nodes)
            self._nodes.append(Node(captured, completion, prompt, parent, known.shared, known.beyond))
            self._children.append([])
            if parent is not None:
                self._children[parent].append(place)
        for place in range(len(self._nodes) - len(call.completions), len(self._nodes)):
            sampled = self._nodes[place].completion.token_ids
            if len(sampled):
                self._tree.extend(known, prompt, sampled, place)
            else:
                # As a sequence of its own it would pass for the parent of every repeat of its prompt.
                self._tree.note(known, prompt, place)

    def _choose(self, captured: CapturedCall, candidates: Sequence[int]) -> int | None:
        if len(candidates) < 2:
            return candidates[0] if candidates else None
        return min(candidates, key=lambda place: (self._prefer(captured, self._nodes[place].captured), place))

    def forest(self) -> Forest:
        return Forest(tuple(self._nodes), tuple(map(tuple, self._children)), tuple(self._outside))


def in_order(calls: Iterable[CapturedCall]) -> list[CapturedCall]:
    """The calls by arrival; raises `InvalidValue` when two share an ordinal or belong to different sessions."""
    ordered = sorted(calls, key=lambda captured: captured.call.ordinal)
    if len({captured.call.session_id for captured in ordered}) > 1:
        raise InvalidValue("a forest is made of the calls of one session")
    for before, after in pairwise(ordered):
        if before.call.ordinal == after.call.ordinal:
            raise InvalidValue(
                f"calls {before.call.call_id} and {after.call.call_id} both have ordinal {after.call.ordinal}"
            )
    return ordered


def _grown(calls: Iterable[CapturedCall], prefer: TieRule) -> _Grower:
    grower = _Grower(prefer)
    for captured in in_order(calls):
        grower.add(captured)
    return grower


def build_forest(calls: Iterable[CapturedCall], prefer: TieRule = by_lineage) -> Forest:
    """The forest of one session's calls. Near linear in the number of tokens."""
    return _grown(calls, prefer).forest()
