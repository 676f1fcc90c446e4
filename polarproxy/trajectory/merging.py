"""The other ways to make rows of a forest, and the table of all of them.

`prefix_merging`, the default, is in `branches`. `per_request` trains the same tokens in the same contexts, in more rows.
`stitch` is there to be compared with: its rows are not what the engine saw.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from polarproxy.model import TOKEN_BYTES, FinishReason, TokenIds
from polarproxy.trajectory.branches import Branch, Turn, prefix_merging

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from polarproxy.trajectory.branches import Merge
    from polarproxy.trajectory.eligibility import Reason
    from polarproxy.trajectory.forest import Forest, Node

_OF_ITSELF = frozenset({FinishReason.STOP, FinishReason.TOOL_CALLS})
"""Ends of a completion whose last token is the end of the turn."""


def per_request(forest: Forest, reasons: Sequence[Reason | None]) -> Iterator[Branch]:
    """One branch for each trained completion: its prompt and itself."""
    trained = [node for node, reason in zip(forest.nodes, reasons, strict=True) if reason is None]
    for index, node in enumerate(trained):
        yield Branch(index, node.context, (Turn(node, node.start, trained=True),))


def stitch(forest: Forest, reasons: Sequence[Reason | None]) -> Iterator[Branch]:
    """Polar's published rule: sampled tokens as they were, with what stood between them in the next prompt.

    A completion joins the row whose last prompt is the longest that its own begins with. What follows that prompt tells the
    reply again, up to the first end-of-turn token; the sampled tokens stand in for it, and the rest is the interstitial.
    Where the reply came back in other tokens, all that is sampled afterwards stands in a context that the engine never
    had. Polar drops the rest of a chain where no end of turn is found; here a new row begins, so nothing is lost.

    Source: arXiv 2605.24220, and the rule's description in NVIDIA-NeMo/ProRL-Agent-Server.
    """
    rows: list[_Row] = []
    for node, reason in zip(forest.nodes, reasons, strict=True):
        if not len(node.completion.token_ids):
            continue
        open_rows = [row for row in rows if node.prompt.startswith(row.prompt)]
        row = max(open_rows, key=lambda row: len(row.prompt), default=None)
        between = None if row is None else row.interstitial(node)
        if row is None or between is None:
            row, between = _Row(), node.prompt
            rows.append(row)
        row.append(node, between, trained=reason is None)
    branches = [branch for row in rows if (branch := row.branch()) is not None]
    yield from (replace(branch, index=index) for index, branch in enumerate(branches))


@dataclass(slots=True)
class _Row:
    """A stitched row that may go on."""

    ids: bytearray = field(default_factory=bytearray)
    """The bytes of its tokens."""
    turns: list[Turn] = field(default_factory=list)
    end_of_turn: int | None = None
    """The last token of the first completion that ended of itself. None: none has yet."""

    @property
    def prompt(self) -> TokenIds:
        """The prompt of the last turn."""
        return self.turns[-1].node.prompt

    def interstitial(self, node: Node) -> TokenIds | None:
        """What stands between the last turn and this one. None: nothing says where the last turn ends."""
        tail = node.prompt.cut(len(self.prompt))
        ends = [] if self.end_of_turn is None else (tail.array == self.end_of_turn).nonzero()[0].tolist()
        if not ends:
            return None
        has_end = int(self.turns[-1].node.completion.token_ids.array[-1]) == self.end_of_turn
        return tail.cut(ends[0] + 1 if has_end else ends[0])

    def append(self, node: Node, between: TokenIds, *, trained: bool) -> None:
        """The next turn, after what stands between."""
        self.ids += between.raw
        turn = Turn(node, len(self.ids) // TOKEN_BYTES, trained, off_context=self.ids != node.prompt.raw)
        self.turns.append(turn)
        self.ids += node.completion.token_ids.raw
        if self.end_of_turn is None and node.completion.finish_reason in _OF_ITSELF:
            self.end_of_turn = int(node.completion.token_ids.array[-1])

    def branch(self) -> Branch | None:
        """The row up to its last trained turn. None: it has none."""
        trained = [place for place, turn in enumerate(self.turns) if turn.trained]
        if not trained:
            return None
        turns = tuple(self.turns[: trained[-1] + 1])
        return Branch(0, TokenIds(bytes(self.ids)).cut(0, turns[-1].stop), turns)


MERGES: tuple[tuple[str, Merge], ...] = (
    ("prefix_merging", prefix_merging),
    ("per_request", per_request),
    ("stitch", stitch),
)
"""Every rule by its name; the first is the default."""
