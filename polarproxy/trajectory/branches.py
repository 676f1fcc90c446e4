"""Branches: append-only token sequences from a root to a leaf, and which of their tokens are trained.

A sampled token is trained in the first branch that contains it and is context in the others. A completion that may not
be trained and that nothing continues makes no branch; it is listed as left out, with its reason.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from polarproxy.trajectory.eligibility import Reason, why_not, why_not_whole
from polarproxy.trajectory.forest import Forest, Node, build_forest, by_lineage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence, Set

    from polarproxy.model import CapturedCall, TokenIds
    from polarproxy.trajectory.forest import TieRule

    Merge = Callable[[Forest, Sequence[Reason | None]], Iterator["Branch"]]
    """Makes branches of a forest, given for each of its nodes why it is not trained. None: it is."""


@dataclass(frozen=True, slots=True)
class Turn:
    """A completion's place in a branch."""

    node: Node
    start: int
    """Where its sampled tokens begin in the branch."""
    trained: bool
    """Whether this branch is the one that trains it."""
    off_context: bool = False
    """Whether other tokens stand before it than the engine had. Only the rule `stitch` makes such turns."""

    @property
    def stop(self) -> int:
        """Where its sampled tokens end."""
        return self.start + len(self.node.completion.token_ids)


@dataclass(frozen=True, slots=True)
class Branch:
    """One sequence, root to leaf."""

    index: int
    token_ids: TokenIds
    """Prompt, completions and interstitials, as the engine saw them (unless the branch is not faithful)."""
    turns: tuple[Turn, ...]
    parent_branch: int | None = None
    """The earlier branch that shares the longest beginning. None: none shares a completion."""
    shared_prefix: int = 0
    """Tokens shared with the parent branch."""

    @property
    def trained_tokens(self) -> int:
        """Sampled tokens that this branch trains."""
        return sum(len(turn.node.completion.token_ids) for turn in self.turns if turn.trained)

    @property
    def off_context_tokens(self) -> int:
        """Trained tokens that were sampled in another context than the one before them here."""
        return sum(len(turn.node.completion.token_ids) for turn in self.turns if turn.trained and turn.off_context)

    @property
    def faithful(self) -> bool:
        """Whether each trained token was sampled in exactly this context."""
        return not self.off_context_tokens


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A completion, or a whole call, that is not trained."""

    call_id: str
    choice: int | None
    """None: the call as a whole."""
    reason: Reason
    tokens: int
    """Sampled tokens that are not trained for it."""


@dataclass(frozen=True, slots=True)
class Trajectory:
    """All branches of a session, and everything that is in none."""

    session_id: str
    branches: tuple[Branch, ...]
    left_out: tuple[LeftOut, ...]
    captured_tokens: int
    """Sampled tokens recorded."""
    trained_tokens: int

    @property
    def coverage(self) -> float | None:
        """Trained / captured sampled tokens. None: nothing was sampled."""
        return self.trained_tokens / self.captured_tokens if self.captured_tokens else None

    def left_out_by_reason(self) -> dict[str, int]:
        """How many completions or calls are left out, by reason."""
        return dict(sorted(Counter(entry.reason.value for entry in self.left_out).items()))


def prefix_merging(forest: Forest, reasons: Sequence[Reason | None]) -> Iterator[Branch]:
    """One branch from a root to each leaf; a prompt that drifted is a root, and nothing is lost or trained out of place."""
    trained: set[int] = set()
    for index, leaf in enumerate(_leaves(forest, reasons)):
        path = forest.ancestors(leaf)[::-1]
        turns = tuple(
            Turn(forest.nodes[place], forest.nodes[place].start, place not in trained and reasons[place] is None)
            for place in path
        )
        trained.update(path)
        yield Branch(index, forest.nodes[leaf].context, turns)


def linked(branches: Iterable[Branch]) -> Iterator[Branch]:
    """The branches, each with the one of those before it that shares its longest beginning."""
    first_in: dict[int, int] = {}
    for branch in branches:
        shared = [turn for turn in branch.turns if id(turn.node) in first_in]
        for turn in branch.turns:
            first_in.setdefault(id(turn.node), branch.index)
        yield replace(
            branch,
            parent_branch=first_in[id(shared[-1].node)] if shared else None,
            shared_prefix=shared[-1].stop if shared else 0,
        )


def build_trajectory(
    session_id: str, calls: Iterable[CapturedCall], merge: Merge = prefix_merging, prefer: TieRule = by_lineage
) -> Trajectory:
    """The branches of one session's calls; raises `InvalidValue` when they are not those of one session."""
    return trajectory_of(session_id, build_forest(calls, prefer), merge)


def trajectory_of(
    session_id: str,
    forest: Forest,
    merge: Merge = prefix_merging,
    refused: Set[tuple[str, int | None]] = frozenset(),
) -> Trajectory:
    """The branches of a forest. `refused`: completions, or (choice None) whole calls, that are not to be trained.

    They stay the context of what follows them, and what else a row of theirs would have trained is trained all the same.
    """
    reasons = [why_not(forest, place) or _refused(node, refused) for place, node in enumerate(forest.nodes)]
    branches = tuple(linked(merge(forest, reasons)))
    left_out = [
        LeftOut(node.captured.call.call_id, node.completion.index, reason, len(node.completion.token_ids))
        for node, reason in zip(forest.nodes, reasons, strict=True)
        if reason is not None
    ]
    left_out.extend(_whole_call(captured) for captured in forest.without_prompt)
    captured = sum(len(node.completion.token_ids) for node in forest.nodes)
    captured += sum(len(c.token_ids) for outside in forest.without_prompt for c in outside.call.completions)
    return Trajectory(
        session_id=session_id,
        branches=branches,
        left_out=tuple(left_out),
        captured_tokens=captured,
        trained_tokens=sum(branch.trained_tokens for branch in branches),
    )


def _refused(node: Node, refused: Set[tuple[str, int | None]]) -> Reason | None:
    call_id = node.captured.call.call_id
    return None if refused.isdisjoint({(call_id, None), (call_id, node.completion.index)}) else Reason.REFUSED


def _whole_call(captured: CapturedCall) -> LeftOut:
    call = captured.call
    tokens = sum(len(completion.token_ids) for completion in call.completions)
    return LeftOut(call.call_id, None, why_not_whole(call), tokens)


def _leaves(forest: Forest, reasons: Sequence[Reason | None]) -> Iterator[int]:
    """The trained completions that lead to no other trained one, depth first."""
    leads: set[int] = set()
    for place in range(len(forest.nodes) - 1, -1, -1):
        if reasons[place] is None or any(child in leads for child in forest.children[place]):
            leads.add(place)
    stack = [place for place in reversed(range(len(forest.nodes))) if forest.nodes[place].parent is None]
    while stack:
        place = stack.pop()
        onward = [child for child in forest.children[place] if child in leads]
        if place in leads and not onward:
            yield place
        stack.extend(reversed(onward))
