"""Messages are read once, with the members that tell what they say, whatever else they hold."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from polarproxy.wire.message_list import Message, read_messages

LEAVES = st.one_of(st.none(), st.booleans(), st.integers(-9, 9), st.text(max_size=4))
VALUES = st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner))
MEMBERS = ("role", "content", "parts", "output")


def read(value: object) -> list[Message]:
    return read_messages(msgspec.Raw(json.dumps(value).encode()))


def said(message: Message) -> list[object]:
    return [json.loads(bytes(getattr(message, name))) for name in MEMBERS]


@given(st.lists(st.dictionaries(st.sampled_from([*MEMBERS, "name", "x"]), VALUES, max_size=4), max_size=4))
def test_each_message_tells_what_its_members_say(messages: list[dict[str, object]]) -> None:
    assert list(map(said, read(messages))) == [[message.get(name) for name in MEMBERS] for message in messages]


@given(st.lists(VALUES, max_size=4))
def test_what_is_no_object_is_all_content(messages: list[object]) -> None:
    expected = [
        [message.get(name) for name in MEMBERS] if isinstance(message, dict) else [None, message, None, None]
        for message in messages
    ]
    assert list(map(said, read(messages))) == expected


@pytest.mark.parametrize("nothing", [None, 1, {}, {"content": "a"}, []])
def test_nothing_else_has_messages(nothing: object) -> None:
    assert read(nothing) == []


def test_a_text_alone_is_one_message() -> None:
    assert list(map(said, read("do it"))) == [[None, "do it", None, None]]
    assert read_messages(None) == []
