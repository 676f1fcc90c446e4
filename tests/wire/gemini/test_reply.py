from __future__ import annotations

from typing import Any

import msgspec
import pytest

from polarproxy.errors import BadReply
from polarproxy.model import Usage
from polarproxy.wire.gemini.reply import decode_reply, encode_reply
from polarproxy.wire.gemini.signature import sign
from polarproxy.wire.neutral.reply import Choice, Finish, Reply
from polarproxy.wire.neutral.request import Text, Thinking, Tool, ToolUse
from tests.wire.gemini.streams import asked


def body(reply: Reply, *, shown: bool = True, tools: tuple[Tool, ...] = ()) -> dict[str, Any]:
    encoded = encode_reply(reply, asked(shown=shown, tools=tools))
    assert encoded.losses == ()
    found: dict[str, Any] = msgspec.json.decode(encoded.body)
    return found


def parts(*said: Thinking | Text | ToolUse, shown: bool = True) -> list[dict[str, Any]]:
    reply = body(Reply((Choice(0, said, "stop"),)), shown=shown)
    found: list[dict[str, Any]] = reply["candidates"][0]["content"]["parts"]
    return found


def test_a_whole_reply() -> None:
    usage = Usage(100, 30, cached_tokens=64, reasoning_tokens=10)
    assert body(Reply((Choice(0, (Text("hi"),), "stop"),), usage)) == {
        "candidates": [{"content": {"parts": [{"text": "hi"}], "role": "model"}, "finishReason": "STOP", "index": 0}],
        "usageMetadata": {
            "promptTokenCount": 100,
            "candidatesTokenCount": 20,
            "totalTokenCount": 130,
            "cachedContentTokenCount": 64,
            "thoughtsTokenCount": 10,
        },
        "modelVersion": "asked-model",
        "responseId": "0123456789abcdef0123456789abcdef",
    }


def test_an_engine_that_does_not_count_has_no_usage() -> None:
    assert "usageMetadata" not in body(Reply((Choice(0, (), "stop"),)))


def test_a_thought_is_shown_to_who_asks_and_signed_for_everyone() -> None:
    said = (Thinking("hm"), Text("hi"))
    assert parts(*said) == [{"text": "hm", "thought": True}, {"text": "hi", "thoughtSignature": sign("hm")}]
    assert parts(*said, shown=False) == [{"text": "hi", "thoughtSignature": sign("hm")}]


def test_a_hidden_thought_at_the_end_is_signed_on_an_empty_part() -> None:
    assert parts(Thinking("hm"), shown=False) == [{"text": "", "thoughtSignature": sign("hm")}]
    assert parts(Thinking("hm")) == [{"text": "hm", "thought": True}]


def test_parallel_calls_carry_one_signature() -> None:
    said = parts(Thinking("hm"), ToolUse("x", "run", '{"a": 1.0}'), ToolUse("", "run", ""))
    assert said[1:] == [
        {"functionCall": {"id": "x", "name": "run", "args": {"a": 1.0}}, "thoughtSignature": sign("hm")},
        {"functionCall": {"name": "run", "args": {}}},
    ]


def test_arguments_keep_their_bytes_on_one_line() -> None:
    call = ToolUse("x", "run", ' {\n  "a": 1e3, "b": "\\n"\r\n} ')
    assert (
        b'"args":{   "a": 1e3, "b": "\\n"  }'
        in encode_reply(Reply((Choice(0, (call,), "tool_calls"),)), asked(shown=True)).body
    )


def test_a_tool_is_called_by_the_clients_name() -> None:
    reply = Reply((Choice(0, (ToolUse("x", "a_b", "{}"),), "tool_calls"),))
    said = body(reply, tools=(Tool("a_b", own_name="a.b"),))["candidates"][0]["content"]["parts"]
    assert said[0]["functionCall"]["name"] == "a.b"


@pytest.mark.parametrize("text", ['{"path": "a.t', "[1]", '{"a": NaN}', '{"a":1}}'])
def test_malformed_arguments_are_wrapped_and_told(text: str) -> None:
    reply = Reply((Choice(0, (ToolUse("x", "run", text),), "tool_calls"),))
    encoded = encode_reply(reply, asked(shown=True))
    said = msgspec.json.decode(encoded.body)["candidates"][0]["content"]["parts"]
    assert said[0]["functionCall"]["args"] == {"_malformed_arguments": text}
    assert [loss.where for loss in encoded.losses] == ["candidates[0].functionCall"]
    assert decode_reply(encoded.body) == reply


@pytest.mark.parametrize(
    ("finish", "reason", "lost"),
    [
        ("stop", "STOP", []),
        ("tool_calls", "STOP", []),
        ("length", "MAX_TOKENS", []),
        ("content_filter", "SAFETY", []),
        ("abort", "OTHER", []),
        ("stop_sequence", "STOP", ["candidates[0].finishReason"]),
    ],
)
def test_a_finish(finish: Finish, reason: str, lost: list[str]) -> None:
    encoded = encode_reply(Reply((Choice(0, (Text("a"),), finish),)), asked(shown=True))
    assert msgspec.json.decode(encoded.body)["candidates"][0]["finishReason"] == reason
    assert [loss.where for loss in encoded.losses] == lost


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        ("STOP", "stop"),
        ("MAX_TOKENS", "length"),
        ("RECITATION", "content_filter"),
        ("MALFORMED_FUNCTION_CALL", "abort"),
        (None, "abort"),
    ],
)
def test_a_reason_of_googles_own(reason: str | None, finish: Finish) -> None:
    candidate = {"content": {"role": "model"}, "finishReason": reason}
    assert decode_reply(msgspec.json.encode({"candidates": [candidate]})) == Reply((Choice(0, (), finish),))


@pytest.mark.parametrize("data", [b"", b"[]", b'{"candidates": 1}', b'{"candidates": [{"content": 1}]}'])
def test_what_is_no_reply_is_refused(data: bytes) -> None:
    with pytest.raises(BadReply, match="not a reply of the Gemini API"):
        decode_reply(data)
