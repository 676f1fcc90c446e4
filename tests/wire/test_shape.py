"""What a request looks like, in the words of every dialect; what cannot be read says nothing."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polarproxy.model import Shape, opening
from polarproxy.wire.shape import shape_of
from tests.harnesses.recorded import NAMES, Recorded, recorded

SYSTEM, ASKED = "You are a title generator. Be short.", "Please name this very session now."
HEAD, LAST = opening(SYSTEM), opening(ASKED)
FUNCTION = {"type": "function", "function": {"name": "bash", "parameters": {}}}
SCHEMA = {"type": "object"}


def shape(**body: Any) -> Shape | None:
    return shape_of(json.dumps(body).encode())


CASES = {
    "chat": {
        "messages": [{"role": "system", "content": SYSTEM}, {"role": "user", "content": ASKED}],
        "tools": [FUNCTION],
        "response_format": {"type": "json_schema", "json_schema": {"schema": SCHEMA}},
    },
    "chat in parts": {
        "messages": [
            {"role": "developer", "content": [{"type": "text", "text": SYSTEM}]},
            {"role": "user", "content": [{"type": "text", "text": "see"}, {"type": "text", "text": ASKED}]},
        ],
        "tools": [FUNCTION],
        "response_format": {"type": "json_object"},
    },
    "responses": {
        "instructions": SYSTEM,
        "input": [{"type": "item"}, {"role": "user", "content": [{"type": "input_text", "text": ASKED}]}],
        "tools": [{"type": "function", "name": "bash", "parameters": {}}],
        "text": {"format": {"type": "json_schema", "schema": SCHEMA}},
    },
    "messages": {
        "system": [
            {"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1.332.4a9; cc_entrypoint=cli;"},
            {"type": "text", "text": SYSTEM},
        ],
        "messages": [{"role": "user", "content": "x"}, {"role": "user", "content": [{"type": "text", "text": ASKED}]}],
        "tools": [{"name": "bash", "input_schema": {}}],
        "output_config": {"format": {"type": "json_schema", "schema": SCHEMA}},
    },
    "gemini": {
        "systemInstruction": {"role": "user", "parts": [{"text": SYSTEM}]},
        "contents": [{"role": "user", "parts": [{"text": "x"}]}, {"role": "user", "parts": [{"text": ASKED}]}],
        "tools": [{"functionDeclarations": [{"name": "bash"}]}],
        "generationConfig": {"responseMimeType": "application/json"},
    },
}


@pytest.mark.parametrize("body", CASES.values(), ids=CASES)
def test_every_dialect_says_the_same(body: dict[str, Any]) -> None:
    assert shape(**body) == Shape(2, ("bash",), True, HEAD, LAST)


def test_bedrock_has_its_tools_elsewhere() -> None:
    body = {"messages": [{"role": "user", "content": [{"text": ASKED}]}], "system": [{"text": SYSTEM}]}
    tools = {"toolConfig": {"tools": [{"toolSpec": {"name": "bash"}}]}}
    assert shape(**body, **tools) == Shape(1, ("bash",), False, HEAD, LAST)


@pytest.mark.parametrize(
    ("tools", "names"),
    [
        ([{"type": "web_search_20250305", "name": "web_search"}], ("web_search",)),
        ([{"googleSearch": {}}], ("googleSearch",)),
        ([{"functionDeclarations": [{"name": "a"}, {"name": "b"}]}, {"googleSearch": {}}], ("a", "b", "googleSearch")),
        ([{"type": "web_search"}, {"type": "namespace", "name": "n", "tools": []}], ("web_search", "n")),
        ([7, FUNCTION, {"name": 1}], ("bash", "name")),
        ([{"name": "x" * 200}], ("x" * 128,)),
        ("all", ()),
        (None, ()),
    ],
)
def test_tools_are_named_whoever_runs_them(tools: Any, names: tuple[str, ...]) -> None:
    found = shape(messages=[], tools=tools)
    assert found is not None
    assert found.tools == names


def test_a_text_alone_is_one_message() -> None:
    assert shape(input=ASKED) == Shape(1, (), False, None, LAST)


@pytest.mark.parametrize("form", [{"type": "text"}, {}, None, "json"])
def test_a_format_that_is_text_wants_no_json(form: Any) -> None:
    for body in ({"response_format": form}, {"text": {"format": form}}, {"output_config": {"format": form}}):
        found = shape(**body)
        assert found is not None
        assert not found.wants_json


@pytest.mark.parametrize("text", ["", "four words are not", "   \n"])
def test_fewer_than_five_words_are_no_opening(text: str) -> None:
    assert opening(text) is None


def test_an_opening_is_five_words_whatever_stands_between_them() -> None:
    assert opening("one  two\nthree four five six") == opening("one two three four five") != opening("1 2 3 4 5")
    assert opening("a b c d " + "e" * 3000) == opening("a b c d " + "e" * 3001) is not None


_LONG_TEXTS = st.text(st.sampled_from(' ab\\"\n\té€😀\u2028'), min_size=1, max_size=40).map(
    lambda text: text * (12_000 // len(text))
)


@given(_LONG_TEXTS, st.booleans())
def test_of_long_texts_the_opening_is_that_of_the_whole(text: str, escaped: bool) -> None:
    messages = [{"content": text, "role": "system"}, {"role": "user", "content": text[7:]}]
    found = shape_of(json.dumps({"messages": messages}, ensure_ascii=escaped).encode())
    assert found == Shape(2, (), False, opening(text), opening(text[7:]))


def test_a_long_message_without_a_text_of_its_own_is_read_whole() -> None:
    message = {"role": "user", "content": "", "parts": [{"text": "x" * 9000}, {"text": ASKED}]}
    assert shape(messages=[message]) == Shape(1, (), False, None, LAST)


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'"x"', b"\xff", b"[" * 5000])
def test_what_is_no_object_has_no_shape(body: bytes) -> None:
    assert shape_of(body) is None


_WORDS = [
    *("messages", "input", "contents", "tools", "toolConfig", "system", "systemInstruction", "text", "format", "parts"),
    *("content", "role", "name", "function", "functionDeclarations", "generationConfig", "output_config", "type"),
]
_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(_WORDS), inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from(_WORDS), _json, max_size=6))
def test_nothing_that_is_json_breaks_it(body: dict[str, Any]) -> None:
    assert shape_of(json.dumps(body).encode()) is not None


def requests() -> list[Recorded]:
    return [each for name in NAMES for each in recorded(name) if isinstance(each.body, dict)]


@pytest.mark.parametrize("request_", requests(), ids=str)
def test_real_requests_have_the_messages_and_tools_that_they_hold(request_: Recorded) -> None:
    body = request_.body
    found = shape_of(request_.raw)
    assert found is not None
    assert found.messages == len(body.get("messages", body.get("input", body.get("contents", []))))
    assert bool(found.tools) == bool(body.get("tools"))
    declared = [d["name"] for tool in body.get("tools") or () for d in tool.get("functionDeclarations", ())]
    if declared:
        assert list(found.tools) == declared
