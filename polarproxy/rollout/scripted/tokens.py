"""The scripted engine's tokenizer and chat template: a token for each byte, and messages between marks."""

from __future__ import annotations

import json
from typing import Any

VOCABULARY = 259
_START, END, _EXTRA = 256, 257, 258
_LEAST = -0.5


def encode(text: str) -> list[int]:
    """The bytes of the text; half characters become question marks."""
    return list(text.encode("utf-8", "replace"))


def spell(token: int) -> str:
    """What a token is called in logprobs."""
    return {_START: "<|im_start|>", END: "<|im_end|>", _EXTRA: "<|tools|>"}.get(token) or bytes([token]).decode(
        errors="replace"
    )


def logprob(token: int) -> float:
    """Some logprob, the same for the same token."""
    return _LEAST - token / 1000


def tool_call(name: str, arguments: str) -> str:
    """A call as the model samples it; `arguments` is JSON, spelled as it is."""
    return f'<tool_call>\n{{"name": {json.dumps(name)}, "arguments": {arguments}}}\n</tool_call>'


def prompt(messages: list[dict[str, Any]], tools: list[Any]) -> list[int]:
    """A conversation's prompt: what an earlier prompt and its completion said comes again as the same tokens."""
    ids = [_EXTRA, *encode(json.dumps(tools, ensure_ascii=False)), END] if tools else []
    for message in messages:
        ids += [_START, *encode(f"{message.get('role')}\n"), *encode(_said(message)), END, *encode("\n")]
    return [*ids, _START, *encode("assistant\n")]


def _said(message: dict[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, list):
        content = "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    calls = (call.get("function", {}) for call in message.get("tool_calls") or ())
    return "\n".join(filter(None, [content, *(tool_call(call.get("name"), call.get("arguments")) for call in calls)]))
