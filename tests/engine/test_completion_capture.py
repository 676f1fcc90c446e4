"""Logprobs as parallel lists, piece by piece."""

import json
import math
from typing import Any

import msgspec
import pytest

from polarproxy.engine.completion_capture import CompletionCapture, CompletionChoice
from polarproxy.errors import BadReply


def raw(value: Any) -> msgspec.Raw:
    return msgspec.Raw(json.dumps(value).encode())


def lists(*tokens: tuple[str, float | None]) -> msgspec.Raw:
    texts, values = [text for text, _ in tokens], [value for _, value in tokens]
    return raw({"text_offset": [], "tokens": texts, "token_logprobs": values, "top_logprobs": []})


def test_pieces_are_put_together() -> None:
    choice = CompletionChoice(0)
    choice.take(raw([1, 2]), lists(("a", -0.5), ("b", -0.25)))
    choice.take(raw([]), lists())
    choice.take(raw([3]), lists(("c", None)))
    assert list(choice.token_ids()) == [1, 2, 3]
    first, second, third = choice.values()
    assert (first, second, math.isnan(third)) == (-0.5, -0.25, True)
    assert [(entry.token, entry.logprob) for entry in choice.entries()] == [("a", -0.5), ("b", -0.25), ("c", None)]


def test_the_values_of_an_echoed_prompt_are_not_among_them() -> None:
    choice = CompletionChoice(0, echoed=2)
    choice.take(raw([3]), lists(("p", None), ("q", -9.0), ("c", -0.5)))
    choice.take(raw([4]), lists(("d", -0.25)))
    assert list(choice.values()) == [-0.5, -0.25]
    assert [entry.token for entry in choice.entries()] == ["c", "d"]


def test_without_logprobs_there_are_none() -> None:
    capture = CompletionCapture()
    capture.choice(0).take(raw([1]), None)
    capture.choice(1).take(raw([2]), lists(("b", -0.5)))
    first, second = capture.completions()
    assert first.logprobs is None
    assert list(second.logprobs or ()) == [-0.5]
    assert capture.token_texts({1, 2}) == {2: b"b"}


def test_a_choice_keeps_its_pieces() -> None:
    capture = CompletionCapture()
    assert capture.choice(3) is capture.choice(3)
    assert list(capture.choices) == [3]


@pytest.mark.parametrize("value", [[], 7, {"token_logprobs": ["x"]}, {"token_logprobs": None}], ids=str)
def test_what_are_no_logprobs_is_refused(value: Any) -> None:
    choice = CompletionChoice(0)
    choice.take(raw([1]), raw(value))
    with pytest.raises(BadReply, match="logprobs of choice 0 cannot be read"):
        choice.values()
