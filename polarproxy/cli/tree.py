"""The forest of a session as a tree in the terminal: calls under the ones that they continue, with what is trained."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text
from rich.tree import Tree

from polarproxy.cli.spelling import CONTEXT, TRAINED

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from polarproxy.model import CapturedCall
    from polarproxy.trajectory.branches import LeftOut, Trajectory
    from polarproxy.trajectory.drift import Drift
    from polarproxy.trajectory.forest import Forest, Node

LEFT_OUT = "yellow"
DRIFT = "bold red"


def tree(forest: Forest, trajectory: Trajectory, drifts: Sequence[Drift]) -> Tree:
    """Every call once. Calls that go on one after the other stand below each other; where they part, each way is indented."""
    drawn = Tree(_head(trajectory), guide_style="dim")
    marks = _Marks(trajectory, drifts)
    todo = [(place, drawn) for place, node in reversed(list(enumerate(forest.nodes))) if node.parent is None]
    while todo:
        place, above = todo.pop()
        line = above.add(marks.line(forest.nodes[place]))
        children = forest.children[place]
        # A conversation stays on its level; its first call and every fork begin a new one.
        below = line if forest.nodes[place].parent is None or len(children) != 1 else above
        todo.extend((child, below) for child in reversed(children))
    for captured in forest.without_prompt:
        drawn.add(marks.without_tokens(captured))
    return drawn


def _head(trajectory: Trajectory) -> Text:
    coverage = "nothing was sampled" if trajectory.coverage is None else f"coverage {trajectory.coverage:.1%}"
    return Text.assemble((f"session {trajectory.session_id}", "bold"), f", {coverage}")


class _Marks:
    """What is to be said of each call."""

    def __init__(self, trajectory: Trajectory, drifts: Sequence[Drift]) -> None:
        self._rows = {
            (turn.node.captured.call.call_id, turn.node.completion.index): branch.index
            for branch in trajectory.branches
            for turn in branch.turns
            if turn.trained
        }
        self._left_out: Mapping[tuple[str, int | None], LeftOut] = {
            (entry.call_id, entry.choice): entry for entry in trajectory.left_out
        }
        self._drifts = {drift.call_id: drift for drift in drifts}

    def line(self, node: Node) -> Text:
        call, completion = node.captured.call, node.completion
        choice = f" choice {completion.index}" if len(call.completions) > 1 else ""
        line = Text.assemble((call.call_id, "bold"), f"{choice} {node.captured.kind}  ")
        row = self._rows.get((call.call_id, completion.index))
        if row is not None:
            line += Text(f"«{node.start}:{node.stop}» trained in row {row}", style=TRAINED)
        else:
            entry = self._left_out[(call.call_id, completion.index)]
            line += Text(f"{node.start}:{node.stop} ", style=CONTEXT) + Text(
                f"left out: {entry.reason}", style=LEFT_OUT
            )
        drift = self._drifts.get(call.call_id)
        if drift is not None:
            line += Text(f"  ≠ {drift.drift_class} at {drift.position} of {drift.earlier_call_id}", style=DRIFT)
        return line

    def without_tokens(self, captured: CapturedCall) -> Text:
        call = captured.call
        reason = self._left_out[(call.call_id, None)].reason
        line = Text.assemble((call.call_id, "bold"), f" {captured.kind}  ")
        return line + Text(f"left out: {reason}", style=LEFT_OUT)
