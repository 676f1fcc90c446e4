"""Whole replies, in the shape of the real API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from polarproxy.errors import BadReply
from polarproxy.model import Usage
from polarproxy.wire.messages.reply import decode_reply, encode_reply
from polarproxy.wire.neutral.reply import Choice, Finish, Reply
from polarproxy.wire.neutral.request import Text, Thinking, ToolUse
from polarproxy.wire.neutral.seal import seal
from tests.wire.neutral.strategies import envelope

if TYPE_CHECKING:
    from polarproxy.wire.neutral.request import Encoded

USAGE = Usage(100, 20, 64, 5)


def _encode(*parts: Text | Thinking | ToolUse, finish: Finish = "stop", usage: Usage | None = USAGE) -> Encoded:
    return encode_reply(Reply((Choice(0, parts, finish),), usage), envelope())


def _body(encoded: Encoded) -> Any:
    return msgspec.json.decode(encoded.body)


def test_a_reply_with_everything() -> None:
    encoded = _encode(
        Thinking("Let me see."),
        Text("I will look."),
        ToolUse("call_1", "read", '{"path":"a"}'),
        finish="tool_calls",
    )
    assert _body(encoded) == {
        "type": "message",
        "id": "msg_0123456789abcdef0123456789abcdef",
        "role": "assistant",
        "model": "asked-model",
        "content": [
            {"type": "thinking", "thinking": "Let me see.", "signature": seal("Let me see.")},
            {"type": "text", "text": "I will look."},
            {"type": "tool_use", "id": "call_1", "name": "read", "input": {"path": "a"}},
        ],
        "stop_reason": "tool_use",
        "stop_sequence": None,
        "usage": {
            "input_tokens": 36,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 64,
            "output_tokens": 20,
            "output_tokens_details": {"thinking_tokens": 5},
        },
    }
    assert encoded.losses == ()


def test_an_empty_reply_has_no_content() -> None:
    assert _body(_encode())["content"] == []
    assert _body(encode_reply(Reply(()), envelope()))["content"] == []


@pytest.mark.parametrize(
    ("finish", "said"),
    [
        ("stop", "end_turn"),
        ("stop_sequence", "stop_sequence"),
        ("length", "max_tokens"),
        ("tool_calls", "tool_use"),
        ("content_filter", "refusal"),
    ],
)
def test_stop_reasons(finish: Finish, said: str) -> None:
    encoded = encode_reply(
        Reply((Choice(0, (), finish, "END" if finish == "stop_sequence" else None),), USAGE), envelope()
    )
    assert _body(encoded)["stop_reason"] == said
    assert _body(encoded)["stop_sequence"] == ("END" if finish == "stop_sequence" else None)
    assert decode_reply(encoded.body).choices[0].finish == finish
    assert encoded.losses == ()


def test_a_call_that_ends_with_stop_is_a_tool_use() -> None:
    assert _body(_encode(ToolUse("i", "n", "{}"), finish="stop"))["stop_reason"] == "tool_use"


def test_an_aborted_reply_is_one_that_was_cut() -> None:
    encoded = _encode(Text("par"), finish="abort")
    assert _body(encoded)["stop_reason"] == "max_tokens"
    assert [loss.where for loss in encoded.losses] == ["stop_reason"]


def test_arguments_are_the_sampled_bytes() -> None:
    arguments = '{ "b":1.0,"a" : "\\u00fcü", "a": 1e3 }'
    assert arguments.encode() in _encode(ToolUse("i", "n", arguments)).body


def test_malformed_arguments_are_wrapped_and_reported() -> None:
    encoded = _encode(ToolUse("i", "n", '{"path": "a.t'), finish="length")
    assert _body(encoded)["content"][0]["input"] == {"_malformed_arguments": '{"path": "a.t'}
    assert [loss.where for loss in encoded.losses] == ["content[0].input"]


def test_further_choices_and_missing_counts_are_reported() -> None:
    encoded = encode_reply(Reply((Choice(0, (Text("a"),), "stop"), Choice(1, (Text("b"),), "stop"))), envelope())
    assert [loss.where for loss in encoded.losses] == ["choices[1]", "usage"]
    usage = _body(encoded)["usage"]
    assert (usage["input_tokens"], usage["output_tokens"]) == (0, 0)
    assert "output_tokens_details" not in usage


def test_a_reply_of_the_real_api_is_read() -> None:
    body = {
        "id": "msg_x",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [
            {"type": "thinking", "thinking": "", "signature": "foreign"},
            {"type": "redacted_thinking", "data": "opaque"},
            {"type": "text", "text": "a", "citations": None},
            {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}},
            {"type": "text", "text": "b"},
            {"type": "text", "text": ""},
        ],
        "stop_reason": "pause_turn",
        "stop_sequence": None,
        "usage": {
            "input_tokens": 1,
            "cache_creation_input_tokens": 2,
            "cache_read_input_tokens": 3,
            "output_tokens": 4,
        },
    }
    parts = (Thinking("", "foreign"), Thinking("", "opaque"), Text("ab"))
    assert decode_reply(msgspec.json.encode(body)) == Reply((Choice(0, parts, "stop"),), Usage(6, 4, 3))


@pytest.mark.parametrize("body", [b"", b"[]", b'{"type":"message"}', b'{"content":[],"usage":"\xff"}'])
def test_what_is_no_message_is_refused(body: bytes) -> None:
    with pytest.raises(BadReply, match="not a message"):
        decode_reply(body)
