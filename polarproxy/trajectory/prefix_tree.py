"""A radix tree over token sequences, to find the longest known one that another begins with.

Keys are the bytes of int32 tokens. Walking and inserting compare slices of bytes, so a lookup costs one pass over the key
at the speed of memory, however many sequences are known. What was found by a lookup is where an insertion goes on, so a
prompt is compared once for both.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Generic, TypeVar

import numpy as np

from polarproxy.model import TOKEN_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from polarproxy.model import TokenIds

T = TypeVar("T")

_MOST_BEYOND = 8
"""Continuations that are named where sequences part; a head that thousands of conversations share has as many."""


class _Node(Generic[T]):
    __slots__ = ("children", "first", "label", "last", "values")

    def __init__(self, label: bytes, first: T | None) -> None:
        self.label = label
        """The tokens between the parent and this node."""
        self.first = first
        """The value of the first sequence that passed here. None: at the root."""
        self.last = first
        """That of a later one: of the last whose path had to be walked from above here."""
        self.children: dict[bytes, _Node[T]] = {}
        """By the first token of their label."""
        self.values: list[T] = []
        """What was inserted under exactly this sequence."""


@dataclass(frozen=True, slots=True)
class Match(Generic[T]):
    """How far a sequence is known."""

    values: tuple[T, ...]
    """Those of the longest inserted sequence that it begins with; empty when there is none."""
    shared: int
    """Tokens that it shares with some inserted sequence."""
    beyond: tuple[T, ...]
    """Of each of the youngest continuations at the place where it leaves what is known: its first and a later sequence."""
    node: _Node[T]
    """The last node that was passed whole."""
    at: int
    """Bytes up to there."""


def _common_bytes(left: bytes, right: bytes) -> int:
    """How many bytes of whole tokens both begin with."""
    size = min(len(left), len(right))
    same = np.frombuffer(left, "<i4", size // TOKEN_BYTES) == np.frombuffer(right, "<i4", size // TOKEN_BYTES)
    return size if same.all() else int(np.argmin(same)) * TOKEN_BYTES


class PrefixTree(Generic[T]):
    """Sequences of tokens, each with the values inserted under it."""

    def __init__(self) -> None:
        self._root: _Node[T] = _Node(b"", None)

    def match(self, tokens: TokenIds) -> Match[T]:
        """How far `tokens` is known, and the longest inserted sequence that it begins with."""
        key, node, at = tokens.raw, self._root, 0
        best, size = node.values, len(tokens.raw)
        child: _Node[T] | None = None
        while at < size:
            child = node.children.get(key[at : at + TOKEN_BYTES])
            if child is None or not key.startswith(child.label, at):
                break
            node, at = child, at + len(child.label)
            best = node.values or best
            child = None
        if child is None:
            youngest = islice(reversed(node.children.values()), _MOST_BEYOND)
            return Match(tuple(best), at // TOKEN_BYTES, _sequences(youngest), node, at)
        shared = at + _common_bytes(child.label, key[at : at + len(child.label)])
        return Match(tuple(best), shared // TOKEN_BYTES, _sequences([child]), node, at)

    def insert(self, tokens: TokenIds, value: T) -> None:
        """Adds a value under a sequence."""
        self._path(self._root, tokens.raw, value).values.append(value)

    def extend(self, known: Match[T], tokens: TokenIds, more: TokenIds, value: T) -> None:
        """Adds a value under `tokens` and `more`, where `known` is what was found for `tokens`."""
        self._path(known.node, tokens.raw[known.at :] + more.raw, value).values.append(value)

    def note(self, known: Match[T], tokens: TokenIds, value: T) -> None:
        """Makes `tokens` known as those of `value`, but as no sequence that others may begin with."""
        self._path(known.node, tokens.raw[known.at :], value)

    def _path(self, node: _Node[T], key: bytes, value: T) -> _Node[T]:
        """The node at the end of a key, made where it is missing."""
        at = 0
        while at < len(key):
            first = key[at : at + TOKEN_BYTES]
            child = node.children.get(first)
            if child is None:
                child = node.children[first] = _Node(key[at:], value)
            elif not key.startswith(child.label, at):
                child = node.children[first] = _split(
                    child, _common_bytes(child.label, key[at : at + len(child.label)])
                )
            child.last = value
            node, at = child, at + len(child.label)
        return node


def _sequences(nodes: Iterable[_Node[T]]) -> tuple[T, ...]:
    found = (value for node in nodes for value in (node.first, node.last) if value is not None)
    return tuple(dict.fromkeys(found))


def _split(node: _Node[T], at: int) -> _Node[T]:
    """A new node for the first `at` bytes of the label, above the old one."""
    upper: _Node[T] = _Node(node.label[:at], node.first)
    node.label = node.label[at:]
    upper.children[node.label[:TOKEN_BYTES]] = node
    return upper
