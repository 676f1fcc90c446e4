"""The prefix forest of a session: every sampled completion, under the one whose tokens its prompt repeats.

`parent(k)` is the earlier-arrived completion *j* with the longest P_j ⊕ C_j that is a prefix of P_k. Equal candidates are
resolved by delivery, then by arrival. Nothing depends on the order in which calls are handed in.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from polarproxy.errors import InvalidValue
from polarproxy.trajectory.prefix_tree import PrefixTree

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from polarproxy.model import CapturedCall, Completion, TokenIds


@dataclass(frozen=True, slots=True)
class Node:
    """One completion in the forest. Only calls whose prompt ids are known are in it."""

    captured: CapturedCall
    completion: Completion
    prompt: TokenIds
    parent: int | None
    """Place of the parent in the forest. None: a root."""

    @property
    def context(self) -> TokenIds:
        """P ⊕ C."""
        return self.prompt + self.completion.token_ids

    @property
    def start(self) -> int:
        """Where the sampled tokens begin in every branch that holds this node."""
        return len(self.prompt)

    @property
    def stop(self) -> int:
        """Where they end."""
        return self.start + len(self.completion.token_ids)


@dataclass(frozen=True, slots=True)
class Forest:
    """Nodes in order of arrival (and of choice index); a parent stands before its children."""

    nodes: tuple[Node, ...]
    children: tuple[tuple[int, ...], ...]
    """For each node, the places of its children, in order."""
    same_prompt: Mapping[bytes, Sequence[int]]
    """For the bytes of each prompt, the places of the nodes that have it, in order."""
    without_prompt: tuple[CapturedCall, ...]
    """Calls that are no nodes, because their prompt ids are not known or nothing was sampled."""


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


def build_forest(calls: Iterable[CapturedCall]) -> Forest:
    """The forest of one session's calls. Near linear in the number of tokens."""
    tree: PrefixTree[int] = PrefixTree()
    nodes: list[Node] = []
    outside: list[CapturedCall] = []
    for captured in in_order(calls):
        prompt = captured.call.prompt_token_ids
        if prompt is None or not captured.call.completions:
            outside.append(captured)
            continue
        parent = _choose(nodes, tree.longest_prefix(prompt))
        by_index = sorted(captured.call.completions, key=lambda completion: completion.index)
        nodes.extend(Node(captured, completion, prompt, parent) for completion in by_index)
        for place in range(len(nodes) - len(captured.call.completions), len(nodes)):
            # A completion without tokens would pass for the parent of every repeat of its prompt.
            if len(nodes[place].completion.token_ids):
                tree.insert(nodes[place].context, place)
    children: list[list[int]] = [[] for _ in nodes]
    same_prompt: dict[bytes, list[int]] = {}
    for place, node in enumerate(nodes):
        same_prompt.setdefault(node.prompt.raw, []).append(place)
        if node.parent is not None:
            children[node.parent].append(place)
    return Forest(tuple(nodes), tuple(map(tuple, children)), same_prompt, tuple(outside))


def _choose(nodes: list[Node], candidates: list[int]) -> int | None:
    if not candidates:
        return None
    return min(candidates, key=lambda place: (not nodes[place].captured.delivered, place))
