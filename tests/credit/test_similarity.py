"""How alike texts are."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polarproxy.credit.similarity import by_counts, by_embedding, ngram_cosine


def test_by_hand() -> None:
    """Uni-, bi- and trigrams of "a b c": 6 of them; "a b d" shares a, b and "a b"."""
    assert ngram_cosine("a b c", "a b d") == pytest.approx(3 / 6)
    assert ngram_cosine("x=1", "x = 1") == pytest.approx(1.0)
    assert ngram_cosine("a", "b") == 0.0
    # counts a:2, "a a":1 against a:1
    assert ngram_cosine("a a", "a") == pytest.approx(2 / math.sqrt(5))


@given(st.text(max_size=30), st.text(max_size=30))
def test_it_lies_between_nothing_and_all_and_is_symmetric(left: str, right: str) -> None:
    alike = ngram_cosine(left, right)
    assert 0 <= alike <= 1
    assert alike == ngram_cosine(right, left) == by_counts()(left, right)


def test_nothing_is_like_nothing() -> None:
    assert ngram_cosine("", "") == ngram_cosine(" ", "a") == 0.0


def test_any_embedding_will_do() -> None:
    asked: list[str] = []

    def embed(text: str) -> list[float]:
        asked.append(text)
        return {"right": [3.0, 0.0], "up": [0.0, 2.0], "between": [1.0, 1.0], "left": [-1.0, 0.0]}[text]

    alike = by_embedding(embed)
    assert alike("right", "between") == pytest.approx(math.sqrt(0.5))
    assert (alike("right", "up"), alike("right", "left"), alike("right", "")) == (0.0, 0.0, 0.0)
    assert sorted(asked) == ["between", "left", "right", "up"]
