"""A radix tree over token sequences, to find the longest known one that another begins with.

Keys are the bytes of int32 tokens. Walking and inserting compare slices of bytes, so a lookup costs one pass over the key
at the speed of memory, however many sequences are known.
"""

from __future__ import annotations

from typing import Generic, TypeVar

import numpy as np

from polarproxy.model import TOKEN_BYTES, TokenIds

T = TypeVar("T")


class _Node(Generic[T]):
    __slots__ = ("children", "label", "values")

    def __init__(self, label: bytes) -> None:
        self.label = label
        """The tokens between the parent and this node."""
        self.children: dict[bytes, _Node[T]] = {}
        """By the first token of their label."""
        self.values: list[T] = []
        """What was inserted under exactly this sequence."""


def _common_bytes(left: bytes, right: bytes) -> int:
    """How many bytes of whole tokens both begin with."""
    size = min(len(left), len(right))
    same = np.frombuffer(left, "<i4", size // TOKEN_BYTES) == np.frombuffer(right, "<i4", size // TOKEN_BYTES)
    return size if same.all() else int(np.argmin(same)) * TOKEN_BYTES


class PrefixTree(Generic[T]):
    """Sequences of tokens, each with the values inserted under it."""

    def __init__(self) -> None:
        self._root: _Node[T] = _Node(b"")

    def insert(self, tokens: TokenIds, value: T) -> None:
        """Adds a value under a sequence."""
        key, node, at = tokens.raw, self._root, 0
        while at < len(key):
            first = key[at : at + TOKEN_BYTES]
            child = node.children.get(first)
            if child is None:
                child = node.children[first] = _Node(key[at:])
            elif not key.startswith(child.label, at):
                child = node.children[first] = _split(
                    child, _common_bytes(child.label, key[at : at + len(child.label)])
                )
            node, at = child, at + len(child.label)
        node.values.append(value)

    def longest_prefix(self, tokens: TokenIds) -> list[T]:
        """The values of the longest inserted sequence that `tokens` begins with; empty when there is none."""
        key, node, at = tokens.raw, self._root, 0
        best = node.values
        while at < len(key):
            child = node.children.get(key[at : at + TOKEN_BYTES])
            if child is None or not key.startswith(child.label, at):
                break
            node, at = child, at + len(child.label)
            best = node.values or best
        return list(best)


def _split(node: _Node[T], at: int) -> _Node[T]:
    """A new node for the first `at` bytes of the label, above the old one."""
    upper: _Node[T] = _Node(node.label[:at])
    node.label = node.label[at:]
    upper.children[node.label[:TOKEN_BYTES]] = node
    return upper
