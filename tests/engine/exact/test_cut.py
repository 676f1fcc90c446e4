"""Where renderings overlap."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from polarproxy.engine.exact.cut import Overlap, common_prefix, common_suffix, end_of_words, only_place, overlap
from polarproxy.model import FallbackReason, TokenIds

ids = st.lists(st.integers(0, 2), max_size=6).map(TokenIds.of)
CLOSE = 9


def of(*parts: list[int]) -> TokenIds:
    return TokenIds.of(id for part in parts for id in part)


@given(ids, ids)
def test_what_is_alike_is_alike_and_no_more(left: TokenIds, right: TokenIds) -> None:
    begins, ends = common_prefix(left, right), common_suffix(left, right)
    assert left.startswith(right.cut(0, begins))
    assert begins == min(len(left), len(right)) or list(left)[begins] != list(right)[begins]
    assert list(left)[len(left) - ends :] == list(right)[len(right) - ends :]
    assert ends == min(len(left), len(right)) or list(left)[-ends - 1] != list(right)[-ends - 1]


@given(ids, st.lists(st.integers(0, 2), max_size=4), st.lists(st.integers(0, 2), max_size=4))
def test_the_end_of_a_turn_is_found_whatever_stands_around_it(head: TokenIds, glue: list[int], rest: list[int]) -> None:
    anchor = of(list(head), [5, 6], [CLOSE], glue, [7], glue)
    other = of(list(head), [8], [CLOSE], glue, [7], glue)
    whole = of(list(head), [5, 6], [CLOSE], glue, [3], rest)
    found = overlap(head, anchor, other, whole)
    assert isinstance(found, Overlap)
    assert found.start == len(head) + 2
    assert found.stop == found.start + 1 + len(glue)
    assert only_place(whole, CLOSE, found) == found.start


def test_renderings_that_do_not_overlap_have_no_boundary() -> None:
    head = of([1])
    assert overlap(head, of([2, 5, 9, 7]), of([2, 6, 9, 7]), of([2, 5, 9, 8])) is FallbackReason.HEAD_CHANGES
    assert overlap(head, of([1, 5, 9, 7]), of([1, 6, 9, 7]), of([2, 5, 9, 8])) is FallbackReason.HEAD_CHANGES
    assert overlap(head, of([1, 9, 7]), of([1, 9, 7]), of([1, 9, 8])) is FallbackReason.TURN_HIDDEN
    assert overlap(head, of([1, 5, 9, 7]), of([1, 6, 9, 7]), of([1, 4, 9, 8])) is FallbackReason.NO_BOUNDARY
    # The turn's end and the next message's words are one token.
    assert overlap(head, of([1, 5, 97]), of([1, 6, 97]), of([1, 5, 98])) is FallbackReason.NO_BOUNDARY


def test_a_token_that_stands_twice_is_nowhere() -> None:
    everything = Overlap(0, 4)
    assert only_place(of([1, 2, 3, 1]), 2, everything) == 1
    assert only_place(of([1, 2, 3, 1]), 1, everything) is None
    assert only_place(of([1, 2, 3, 1]), 4, everything) is None
    assert only_place(of([1, 2, 3, 1]), 1, Overlap(1, 4)) == 3
    assert only_place(of([1, 2, 3, 1]), 1, Overlap(0, 3)) == 0


def test_words_that_are_not_shown_have_no_end() -> None:
    assert end_of_words(of([1, 2]), of([1, 2])) is None
    assert end_of_words(of([1, 5]), of([1, 6])) == 2
