"""Members that a template may read and that no key tells are found, wherever they stand; words of them are not."""

import json
from typing import Any

import msgspec
import pytest

from polarproxy.engine.exact.unkeyed import unkeyed

TOOL = {"type": "function", "function": {"name": "f", "description": 'says "defer_loading"', "parameters": {}}}
SAID = 'says "task", "tools" and "tool_reference"'


def found(message: dict[str, Any], tool: dict[str, Any]) -> str | None:
    messages = [{"role": "user", "content": SAID}, message]
    return unkeyed(
        {"tools": msgspec.Raw(json.dumps([tool]).encode())}, [msgspec.Raw(json.dumps(one).encode()) for one in messages]
    )


@pytest.mark.parametrize(
    ("message", "tool", "member"),
    [
        ({"tools": [{"a": 1}]}, {}, "`tools`"),
        ({"task": "A"}, {}, "`task`"),
        ({"content": ["a", {"type": "tool_reference", "name": "f"}]}, {}, "`tool_reference`"),
        ({}, {"defer_loading": True}, "`defer_loading`"),
        ({}, {"defer_loading": False}, "`defer_loading`"),
        ({}, {"function": {"name": "f", "defer_loading": True}}, "`defer_loading`"),
    ],
)
def test_a_member_is_found(message: dict[str, Any], tool: dict[str, Any], member: str) -> None:
    assert member in str(found({"role": "developer", "content": "You."} | message, TOOL | tool))


@pytest.mark.parametrize(
    "message",
    [
        {"content": SAID},
        {"content": None, "task": None, "tools": None},
        {"content": [{"type": "text", "text": SAID}, SAID]},
        {"content": None, "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": {"task": 1, "tools": 2}}}]},
    ],
)
def test_words_are_none(message: dict[str, Any]) -> None:
    named = {"name": "f", "parameters": {"properties": {"defer_loading": {}}}}
    assert (
        found({"role": "assistant"} | message, {"type": "function", "function": named, "defer_loading": None}) is None
    )


def test_what_cannot_be_read_is_the_engines_to_refuse() -> None:
    assert unkeyed({"tools": msgspec.Raw(b'{"defer_loading":1}')}, []) is None
    assert unkeyed({}, [msgspec.Raw(b'["task"]')]) is None
