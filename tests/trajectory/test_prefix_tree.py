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
        _insert(tree, key, value)
        known.setdefault(key, []).append(value)
        for query in (*asked, *inserted):
            found = tree.match(TokenIds.of(query))
            assert list(found.values) == longest(known, query)
            assert found.shared == max((_common(one, query) for one in known), default=0)


def _insert(tree: PrefixTree[int], key: tuple[int, ...], value: int) -> None:
    """Sometimes in one piece, sometimes as a prompt that was looked up and what was sampled on it."""
    prompt, more = TokenIds.of(key[: value % 4]), TokenIds.of(key[value % 4 :])
    if value % 2:
        tree.extend(tree.match(prompt), prompt, more, value)
    else:
        tree.insert(prompt + more, value)


def _common(left: tuple[int, ...], right: tuple[int, ...]) -> int:
    return next((at for at, (a, b) in enumerate(zip(left, right, strict=False)) if a != b), min(len(left), len(right)))


def test_an_empty_tree_knows_nothing() -> None:
    found = PrefixTree[int]().match(TokenIds.of([1, 2]))
    assert (found.values, found.shared, found.beyond) == ((), 0, ())


def test_where_sequences_part_the_first_and_a_later_one_of_each_way_on_are_named() -> None:
    tree = PrefixTree[str]()
    for key, value in (((1, 2, 3), "a"), ((1, 2, 3, 4), "b"), ((1, 2, 5), "c")):
        tree.insert(TokenIds.of(key), value)
    assert tree.match(TokenIds.of([1, 2, 9])).beyond == ("c", "a", "b")
    assert tree.match(TokenIds.of([1, 9])).beyond == ("a", "c")
    assert tree.match(TokenIds.of([1, 2, 3, 9])).beyond == ("b",)
    assert tree.match(TokenIds.of([1, 2, 3, 4, 9])).beyond == ()


def test_what_is_only_noted_is_known_and_nobody_begins_with_it() -> None:
    tree = PrefixTree[str]()
    tree.note(tree.match(TokenIds.of([1, 2])), TokenIds.of([1, 2]), "a")
    found = tree.match(TokenIds.of([1, 2, 3]))
    assert (found.values, found.shared) == ((), 2)
    assert tree.match(TokenIds.of([1, 3])).beyond == ("a",)


def test_of_many_ways_on_only_the_youngest_are_named() -> None:
    tree = PrefixTree[int]()
    for value in range(20):
        tree.insert(TokenIds.of([7, value]), value)
    assert tree.match(TokenIds.of([7, 99])).beyond == tuple(range(19, 11, -1))


def test_what_was_found_for_a_prompt_stays_good_while_its_choices_are_added() -> None:
    tree = PrefixTree[str]()
    tree.insert(TokenIds.of([1, 2, 3, 4]), "before")
    prompt = TokenIds.of([1, 2])
    found = tree.match(prompt)
    for value, sampled in (("a", [3, 4]), ("b", [3, 5]), ("c", [6])):
        tree.extend(found, prompt, TokenIds.of(sampled), value)
    assert [tree.match(TokenIds.of([1, 2, *sampled])).values for sampled in ([3, 4], [3, 5], [6])] == [
        ("before", "a"),
        ("b",),
        ("c",),
    ]


def test_tokens_are_compared_whole_not_by_their_bytes() -> None:
    """256 and 1 share a byte at another place; [0x01020304] begins with no [0x04]."""
    tree = PrefixTree[str]()
    tree.insert(TokenIds.of([0x04]), "short")
    tree.insert(TokenIds.of([256]), "wide")
    assert tree.match(TokenIds.of([0x01020304])).values == ()
    assert tree.match(TokenIds.of([1])).values == ()
    assert tree.match(TokenIds.of([256, 1])).values == ("wide",)
