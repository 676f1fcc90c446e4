"""Conversations are recognised by what their messages mean, not by how they are written."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polarproxy.wire.conversation import prefix_digests, reply_digest, reply_messages

VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
    max_leaves=5,
)
MESSAGES = st.dictionaries(st.sampled_from(["role", "content", "name", "tool_calls"]), VALUES)


def digest(message: Any) -> bytes:
    return prefix_digests([json.dumps(message).encode()])[0]


def turned_round(value: Any) -> Any:
    """The same value with every object's members the other way round."""
    if isinstance(value, dict):
        return {name: turned_round(inner) for name, inner in reversed(value.items())}
    return [turned_round(inner) for inner in value] if isinstance(value, list) else value


@given(MESSAGES, st.sampled_from([None, 1]), st.booleans())
def test_writing_does_not_matter(message: dict[str, Any], indent: int | None, ascii_only: bool) -> None:
    other = json.dumps(turned_round(message), indent=indent, ensure_ascii=ascii_only).encode()
    assert prefix_digests([other])[0] == digest(message)


@given(st.lists(st.text(max_size=4), min_size=1, max_size=3))
def test_text_parts_are_the_text(parts: list[str]) -> None:
    listed = {"role": "user", "content": [{"type": "text", "text": part} for part in parts]}
    assert digest(listed) == digest({"role": "user", "content": "".join(parts)})


def test_a_cache_mark_on_a_part_does_not_matter() -> None:
    marked = [{"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}}]
    assert digest({"role": "user", "content": marked}) == digest({"role": "user", "content": "hi"})


def test_no_content_is_null_content() -> None:
    assert digest({"role": "assistant"}) == digest({"role": "assistant", "content": None})


@pytest.mark.parametrize(
    "other",
    [
        {"role": "user", "content": "hi "},
        {"role": "system", "content": "hi"},
        {"role": "user", "content": "hi", "name": "x"},
        {"role": "user", "content": [{"type": "text", "text": "hi"}, {"type": "image_url", "image_url": {"url": "x"}}]},
        {"role": "user", "content": ""},
        {"role": "user"},
        ["hi"],
        None,
    ],
    ids=str,
)
def test_another_meaning_is_another_digest(other: Any) -> None:
    assert digest(other) != digest({"role": "user", "content": "hi"})


@given(st.lists(MESSAGES, max_size=4), st.lists(MESSAGES, max_size=4))
def test_digests_are_those_of_the_prefixes(left: list[Any], right: list[Any]) -> None:
    one, other = ([json.dumps(message).encode() for message in messages] for messages in (left, right))
    assert prefix_digests(one + other)[: len(one)] == prefix_digests(one)
    assert len(prefix_digests(one)) == len(one)


def test_messages_do_not_run_into_each_other() -> None:
    assert prefix_digests([b'"a"', b'"b"'])[-1] != prefix_digests([b'"ab"'])[-1]
    assert prefix_digests([b"1", b"1"])[-1] != prefix_digests([b"11"])[-1]


def test_integers_too_large_for_a_word_are_no_crash() -> None:
    assert len(prefix_digests([b'{"content": 123456789012345678901234567890}'])) == 1


def said(**members: Any) -> bytes | None:
    return reply_digest(json.dumps({"role": "assistant", **members}).encode())


CALL = {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}


def test_a_reply_comes_back_with_other_reasoning_spacing_and_emptiness() -> None:
    assert said(content="x", reasoning="hm") == said(content="x")
    assert said(content=[{"type": "text", "text": "x"}]) == said(content="x")
    assert said(content=None, tool_calls=[CALL]) == said(content="", tool_calls=[CALL]) == said(tool_calls=[CALL])
    spaced = CALL | {"function": {"name": "f", "arguments": "{ }"}}
    assert said(tool_calls=[spaced]) == said(tool_calls=[CALL])


def test_key_order_of_content_parts_does_not_matter_in_a_reply_either() -> None:
    assert said(content=[{"type": "audio", "id": "1"}]) == said(content=[{"id": "1", "type": "audio"}])


def test_another_reply_is_another_digest() -> None:
    other_id = CALL | {"id": "b"}
    different = [said(content="x"), said(content="y"), said(tool_calls=[CALL]), said(tool_calls=[other_id]), said()]
    assert len(set(different)) == len(different)


@pytest.mark.parametrize("message", [b"", b"null", b"[]", b"{", b'{"tool_calls": 7}', b'{"content": "\xff"}'])
def test_a_reply_that_cannot_be_read_has_no_digest(message: bytes) -> None:
    assert reply_digest(message) is None


def test_the_first_choice_is_the_reply() -> None:
    assert reply_messages(b'{"choices": [{"message": {"a": 1e3}}, {"message": {}}]}') == [b'{"a": 1e3}', b"{}"]


@pytest.mark.parametrize("body", [b"", b"null", b"{}", b'{"choices": []}', b'{"choices": [{}]}', b'{"error": {}}'])
def test_a_reply_without_a_message(body: bytes) -> None:
    assert reply_messages(body) == []
