"""The radix tree answers as a dict of all sequences would."""

from collections.abc import Sequence

from hypothesis import example, given
from hypothesis import strategies as st

from polarproxy.model import TokenIds
from polarproxy.trajectory.prefix_tree import PrefixTree

KEYS = st.lists(st.integers(0, 2), max_size=6).map(tuple)


def longest(known: dict[tuple[int, ...], list[int]], key: tuple[int, ...]) -> list[int]:
    """Every prefix is tried, the longest first."""
    return next((known[key[:size]] for size in range(len(key), -1, -1) if key[:size] in known), [])


@given(st.lists(KEYS, max_size=12), st.lists(KEYS, max_size=12))
@example([(1, 2, 3), (1, 2), (1,)], [(1, 2, 3, 4), (1, 2, 4), (1, 3), (2,)])
@example([()], [(), (1,)])
def test_the_longest_prefix_is_found(inserted: Sequence[tuple[int, ...]], asked: Sequence[tuple[int, ...]]) -> None:
    tree, known = PrefixTree[int](), dict[tuple[int, ...], list[int]]()
    for value, key in enumerate(inserted):
        tree.insert(TokenIds.of(key), value)
        known.setdefault(key, []).append(value)
        for query in (*asked, *inserted):
            assert tree.longest_prefix(TokenIds.of(query)) == longest(known, query)


def test_an_empty_tree_knows_nothing() -> None:
    assert PrefixTree[int]().longest_prefix(TokenIds.of([1, 2])) == []


def test_tokens_are_compared_whole_not_by_their_bytes() -> None:
    """256 and 1 share a byte at another place; [0x01020304] begins with no [0x04]."""
    tree = PrefixTree[str]()
    tree.insert(TokenIds.of([0x04]), "short")
    tree.insert(TokenIds.of([256]), "wide")
    assert tree.longest_prefix(TokenIds.of([0x01020304])) == []
    assert tree.longest_prefix(TokenIds.of([1])) == []
    assert tree.longest_prefix(TokenIds.of([256, 1])) == ["wide"]


def test_the_answer_is_a_copy() -> None:
    tree = PrefixTree[int]()
    tree.insert(TokenIds.of([1]), 7)
    tree.longest_prefix(TokenIds.of([1])).clear()
    assert tree.longest_prefix(TokenIds.of([1])) == [7]
