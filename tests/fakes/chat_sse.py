"""A chat answer as vLLM's server-sent events.

Only fields that vLLM sets are sent, so a null is not the same as an absent key. An event with an empty delta is sent
only when ids or logprobs were asked for, or when it ends the choice.
"""

import math
from collections.abc import Iterator
from itertools import zip_longest
from typing import Any

import msgspec

from tests.fakes.answer import FINGERPRINT, ChatAnswer, Choice, merged
from tests.fakes.chat_json import ranked
from tests.fakes.script import Delta, Step, Token

DONE = b"data: [DONE]\n\n"


def events(answer: ChatAnswer) -> Iterator[bytes]:
    yield from (_event(chunk) for chunk in _chunks(answer))
    yield DONE


def _event(chunk: dict[str, Any]) -> bytes:
    return b"data: " + msgspec.json.encode(chunk) + b"\n\n"


def _chunks(answer: ChatAnswer) -> Iterator[dict[str, Any]]:
    for choice in answer.choices:
        yield _role_chunk(answer, choice)
    for round_ in zip_longest(*(_step_chunks(answer, choice) for choice in answer.choices)):
        yield from (chunk for chunk in round_ if chunk)
    if answer.request.include_usage:
        yield _usage_chunk(answer)


def _head(answer: ChatAnswer, choices: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "id": answer.id,
        "object": "chat.completion.chunk",
        "created": answer.created,
        "model": answer.model,
        "choices": choices,
    }


def _role_chunk(answer: ChatAnswer, choice: Choice) -> dict[str, Any]:
    delta = {"role": "assistant", "content": ""}
    chunk = _head(answer, [{"index": choice.index, "delta": delta, "logprobs": None, "finish_reason": None}])
    if answer.request.continuous_usage:
        chunk["usage"] = _usage(answer, 0, 0)
    return {**chunk, "prompt_token_ids": answer.shown_prompt_ids, "prompt_text": None}


def _step_chunks(answer: ChatAnswer, choice: Choice) -> Iterator[dict[str, Any] | None]:
    """One chunk per step of a choice; None for a step that is not sent."""
    size, steps = answer.faults.steps_per_event, choice.reply.steps
    grouped = [merged(steps[at : at + size]) for at in range(0, len(steps), size)]
    sent = list[Token]()
    for number, step in enumerate(grouped, 1):
        start = len(sent)
        sent += step.tokens
        last = number == len(grouped)
        if last or answer.with_logprobs or answer.with_ids or _visible(answer, step.delta):
            yield _step_chunk(answer, choice, step, sent, start, last=last)
        else:
            yield None


def _visible(answer: ChatAnswer, delta: Delta) -> bool:
    return bool(delta.content or delta.tools) if answer.hidden else bool(delta)


def _step_chunk(
    answer: ChatAnswer, choice: Choice, step: Step, sent: list[Token], start: int, *, last: bool
) -> dict[str, Any]:
    faults, logprobs = answer.faults, None
    if answer.with_logprobs:
        kept = sent[max(start, faults.drop_logprobs) :]
        logprobs = {"content": [_logprob(token, answer.request.top_logprobs or 0) for token in kept]}
    ids = [token.id for token in sent[max(start, faults.drop_ids) :]] if answer.with_ids else None
    end = {"finish_reason": _finish(choice), "stop_reason": choice.reply.stop_reason} if last else {}
    data = {
        "index": choice.index,
        "delta": _delta(answer, choice, step.delta),
        "logprobs": logprobs,
        **(end or {"finish_reason": None}),
        "token_ids": ids,
    }
    chunk = _head(answer, [data])
    if answer.request.continuous_usage:
        chunk["usage"] = _usage(answer, len(sent), sum(token.reasoning for token in sent))
    if last and not answer.request.include_usage:
        chunk["system_fingerprint"] = FINGERPRINT
    return chunk


def _finish(choice: Choice) -> str:
    reason = choice.reply.finish_reason
    return "tool_calls" if reason == "stop" and choice.tools_streamed else reason


def _delta(answer: ChatAnswer, choice: Choice, delta: Delta) -> dict[str, Any]:
    if not _visible(answer, delta):
        return {}
    shown: dict[str, Any] = {}
    if delta.content is not None or delta.tools:
        shown["content"] = delta.content
    if delta.reasoning is not None or answer.hidden:
        shown["reasoning"] = None if answer.hidden else delta.reasoning
    calls = list[dict[str, Any]]()
    for tool in delta.tools:
        if tool.name is not None:
            opening = {"id": answer.tool_id(choice.index, tool.index), "type": "function"}
            calls.append({**opening, "index": tool.index, "function": {"name": tool.name}})
        if tool.arguments:
            calls.append({"index": tool.index, "function": {"arguments": tool.arguments}})
    return {**shown, "tool_calls": calls} if calls else shown


def _logprob(token: Token, top: int) -> dict[str, Any]:
    entry: dict[str, Any] = {"token": token.text}
    if token.logprob is None:
        return {**entry, "bytes": list(token.text.encode())}
    return {
        **entry,
        "logprob": msgspec.Raw(b"NaN") if math.isnan(token.logprob) else token.logprob,
        "bytes": list(token.text.encode()),
        "top_logprobs": [
            {"token": text, "logprob": logprob, "bytes": list(text.encode())} for text, logprob in ranked(token, top)
        ],
    }


def _usage(answer: ChatAnswer, completion: int, reasoning: int, **details: Any) -> dict[str, Any]:
    prompt = len(answer.prompt_token_ids)
    return {
        "prompt_tokens": prompt,
        "total_tokens": prompt + completion,
        "completion_tokens": completion,
        **details,
        "completion_tokens_details": {"reasoning_tokens": reasoning},
    }


def _usage_chunk(answer: ChatAnswer) -> dict[str, Any]:
    completion = sum(len(choice.reply.tokens) for choice in answer.choices)
    reasoning = sum(choice.reasoning_tokens for choice in answer.choices)
    details = {"cached_tokens": answer.cached_tokens, "created_cache_tokens": 0}
    usage = _usage(answer, completion, reasoning, prompt_tokens_details=details)
    return {**_head(answer, []), "usage": usage, "system_fingerprint": FINGERPRINT}
