"""Whole chat replies at random, as the bytes an engine would send, and what their parts say, for law 8."""

import json
from typing import Any

from hypothesis import strategies as st

ARGUMENTS = st.sampled_from(
    ['{"unit":"C", "city":"Paris"}', '{"x": 1e3, "y":0.10, "\\u00fc": "ü"}', "{}", "", "not JSON"]
)
TEXT = st.none() | st.text(max_size=6)


def tool_call(place: int, name: str, arguments: str) -> dict[str, Any]:
    return {"id": f"call-{place}", "type": "function", "function": {"name": name, "arguments": arguments}}


@st.composite
def messages(draw: st.DrawFn) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": draw(TEXT)}
    reasoning = draw(st.sampled_from([None, "reasoning", "reasoning_content"]))
    if reasoning is not None:
        message[reasoning] = draw(TEXT)
    if draw(st.booleans()):
        made = draw(
            st.lists(st.tuples(st.sampled_from(["f", "get_weather"]), ARGUMENTS | st.text(max_size=6)), max_size=3)
        )
        message["tool_calls"] = [tool_call(place, *call) for place, call in enumerate(made)] or None
    return message


def _entry(token: str) -> dict[str, Any]:
    return {"token": token, "logprob": -0.5, "bytes": list(token.encode()), "top_logprobs": []}


@st.composite
def choices(draw: st.DrawFn, index: int) -> dict[str, Any]:
    choice = {
        "index": index,
        "message": draw(messages()),
        "finish_reason": draw(st.sampled_from(["stop", "tool_calls"])),
    }
    if draw(st.booleans()):
        tokens = draw(st.lists(st.sampled_from(["a", "ü", "<|im_end|>"]), max_size=3))
        choice["logprobs"] = draw(st.sampled_from([None, {"content": [_entry(token) for token in tokens]}]))
    return choice


@st.composite
def replies(draw: st.DrawFn) -> dict[str, Any]:
    usage = {"prompt_tokens": 3, "completion_tokens": draw(st.integers(0, 9)), "total_tokens": 9}
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1700000000,
        "model": "tiny",
        "system_fingerprint": "b1",
        "choices": [draw(choices(index)) for index in range(draw(st.integers(1, 3)))],
        "usage": usage,
        "timings": {"prompt_n": 3},
    }


def encode(reply: dict[str, Any]) -> bytes:
    return json.dumps(reply, ensure_ascii=False).encode()


def what_it_says(message: dict[str, Any]) -> dict[str, Any]:
    """A message without members that say nothing; no content and empty content are the same in a stream."""
    return {name: value for name, value in message.items() if value not in (None, "", [])}
