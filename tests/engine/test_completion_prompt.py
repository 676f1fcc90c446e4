"""Which requests to `/v1/completions` have one prompt, and what it is."""

import json
from typing import Any

import pytest

from polarproxy.engine.completion_prompt import is_text, only_prompt, text_of
from polarproxy.wire.completions.fields import read_request


def found(body: bytes) -> Any:
    prompt = only_prompt(read_request(body).fields)
    return None if prompt is None else json.loads(bytes(prompt))


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [("a", "a"), (["a"], "a"), ([1, 2], [1, 2]), ([[1, 2]], [1, 2]), ("", ""), ([""], ""), ([1, "a"], [1, "a"])],
    ids=str,
)
def test_one_prompt(prompt: Any, expected: Any) -> None:
    assert found(json.dumps({"prompt": prompt}).encode()) == expected
    assert found(json.dumps({"prompt": prompt, "prompt_embeds": None}, indent=3).encode()) == expected


@pytest.mark.parametrize(
    "prompt", [["a", "b"], [[1], [2]], ["a", 1], None, 7, True, {"prompt_string": "a"}, [[[1]], [2]]], ids=str
)
def test_several_or_none(prompt: Any) -> None:
    assert found(json.dumps({"prompt": prompt}).encode()) is None


def test_an_embedded_prompt_is_none_that_ids_could_show() -> None:
    assert found(b'{"prompt": "a", "prompt_embeds": "AAAA"}') is None
    assert found(b'{"prompt_embeds": "AAAA"}') is None
    assert found(b"{}") is None


def test_a_text_is_told_from_ids() -> None:
    fields = read_request(b'{"a": "\\u00fc", "b": [1]}').fields
    assert [is_text(fields[name]) for name in ("a", "b")] == [True, False]
    assert [text_of(fields[name]) for name in ("a", "b")] == ["ü", None]


def test_what_is_no_text_is_left_to_the_engine() -> None:
    assert only_prompt(read_request(b'{"prompt": ["\xff", "b"]}').fields) is None
