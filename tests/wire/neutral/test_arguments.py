"""Arguments as an object and back."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from polarproxy.wire.neutral.arguments import from_object, is_object, to_object
from tests.wire.neutral.strategies import argument_texts

SPACE = st.text(" \t\r\n", max_size=2)
WRAPPERS = st.sampled_from(
    ('{"_malformed_arguments": "x"}', '{"_malformed_arguments": 1}', '{"_malformed_arguments":"x","a":1}')
)


@given(SPACE, argument_texts("any") | WRAPPERS | st.text(), SPACE)
def test_arguments_come_back(before: str, said: str, after: str) -> None:
    text = before + said + after
    value, well_formed = to_object(text)
    assert isinstance(msgspec.json.decode(value, strict=False), dict)
    bare = text.strip(" \t\r\n")
    assert from_object(value) == ((bare or "{}") if well_formed else text)
    assert not well_formed or value == (bare or "{}").encode()


@pytest.mark.parametrize("text", ["", "  ", "\n"])
def test_blank_arguments_are_an_empty_object(text: str) -> None:
    assert to_object(text) == (b"{}", True)


@given(argument_texts("object"))
def test_an_object_is_passed_as_it_is_spelled(text: str) -> None:
    assert is_object(text)
    assert to_object(text) == (text.strip().encode(), True)


@pytest.mark.parametrize("text", ["[]", '{"a":1}}', '{"a": NaN}', "null", "x", "\x0b{}", "{" * 100_000])
def test_what_is_no_object_is_wrapped(text: str) -> None:
    value, well_formed = to_object(text)
    assert not well_formed
    assert msgspec.json.decode(value) == {"_malformed_arguments": text}
