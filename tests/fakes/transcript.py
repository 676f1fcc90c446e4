"""Read back what an engine sampled from a stream it sent with ids and logprobs, as turns for the fake engine."""

import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from tests.fakes.script import Delta, Reply, Step, Token, ToolDelta, Turn

_VOLATILE = (
    (re.compile(r"chatcmpl-tool-[0-9a-f]+"), "TOOL"),
    (re.compile(r'"id":"(chat)?cmpl-[^"]+"'), '"id":"ID"'),
    (re.compile(r'"created":\d+'), '"created":0'),
    (re.compile(r'"system_fingerprint":"[^"]+"'), '"system_fingerprint":"FP"'),
    (re.compile(r'"(cached_tokens|created_cache_tokens)":\d+'), r'"\1":0'),
)


def stable(body: bytes) -> str:
    """A reply's text without what differs from one run to the next: ids, time, weights, the state of the cache."""
    text = body.decode()
    for pattern, put in _VOLATILE:
        text = pattern.sub(put, text)
    return text


def by_choice(stream: bytes) -> list[str]:
    """The stable events of a stream, those of one choice together: how choices interleave is a matter of timing."""
    events = [event for event in stable(stream).split("\n\n") if event]
    return sorted(events, key=_choice_index)


def without_counts(events: list[str]) -> list[str]:
    """The same events with every token count 0."""
    return [re.sub(r'_tokens":\d+', '_tokens":0', event) for event in events]


def _choice_index(event: str) -> int:
    found = re.search(r'"choices":\[\{"index":(\d+)', event)
    return int(found[1]) if found else sys.maxsize


def chunks(stream: bytes) -> Iterator[dict[str, Any]]:
    """The decoded `data:` events but for `[DONE]`."""
    for line in stream.decode().split("\n\n"):
        if line and line != "data: [DONE]":
            yield json.loads(line.removeprefix("data: "))


_UNKNOWN: dict[str, Any] = {"token": "", "logprob": None, "top_logprobs": []}


@dataclass
class _Choice:
    steps: list[Step] = field(default_factory=list)
    reasoning: bool = True
    finish_reason: str = "stop"
    stop_reason: str | int | None = None


def turn(stream: bytes) -> Turn:
    """Under a parser that expects reasoning first. For a stream that shows no ids, logprobs or both, each event counts as
    one token, with an id of 0, no text or no logprob."""
    choices, prompt = dict[int, _Choice](), tuple[int, ...]()
    for chunk in chunks(stream):
        prompt = tuple(chunk.get("prompt_token_ids") or prompt)
        for data in chunk["choices"]:
            choice = choices.setdefault(data["index"], _Choice())
            if "token_ids" in data:
                choice.steps.append(_step(choice, data))
            if data["finish_reason"]:
                reason = data["finish_reason"]
                choice.finish_reason = "stop" if reason == "tool_calls" else reason
                choice.stop_reason = data["stop_reason"]
    replies = [
        Reply(tuple(choice.steps), choice.finish_reason, choice.stop_reason, prompt)
        for _, choice in sorted(choices.items())
    ]
    return Turn(tuple(replies))


def _step(choice: _Choice, data: dict[str, Any]) -> Step:
    entries = data["logprobs"]["content"] if data["logprobs"] else None
    ids = data["token_ids"] or [0] * len(entries or (0,))
    tokens = tuple(
        _token(choice, token_id, entry) for token_id, entry in zip(ids, entries or [_UNKNOWN] * len(ids), strict=True)
    )
    return Step(tokens, _delta(data["delta"]))


def _token(choice: _Choice, token_id: int, entry: dict[str, Any]) -> Token:
    text = entry["token"]
    others = tuple((other["token"], other["logprob"]) for other in entry["top_logprobs"][1:])
    token = Token(token_id, text, entry["logprob"], others=others)
    if text == "</think>":
        choice.reasoning = False
    return replace(token, reasoning=choice.reasoning and text not in ("<think>", "<|im_end|>"))


def _delta(data: dict[str, Any]) -> Delta:
    tools = tuple(
        ToolDelta(call["index"], call["function"].get("name"), call["function"].get("arguments"))
        for call in data.get("tool_calls", ())
    )
    return Delta(data.get("content"), data.get("reasoning"), tools)
