"""A chat answer as vLLM's one JSON body: key order, nulls and number format included."""

import json
import re
from collections.abc import Sequence
from typing import Any

from tests.fakes.answer import FINGERPRINT, ChatAnswer, Choice, merged_delta
from tests.fakes.script import Token

HIDDEN_MARKS = frozenset({"<think>", "</think>", "<|im_end|>"})
_TOOL_CALL = re.compile(r"<tool_call>(.*?)</tool_call>|<tool_call>(.*)", re.DOTALL)


def body(answer: ChatAnswer) -> bytes:
    message = {
        "id": answer.id,
        "object": "chat.completion",
        "created": answer.created,
        "model": answer.model,
        "choices": [_choice(answer, choice) for choice in answer.choices],
        "service_tier": None,
        "system_fingerprint": FINGERPRINT,
        "usage": _usage(answer),
        "prompt_logprobs": None,
        "prompt_token_ids": answer.shown_prompt_ids,
        "prompt_text": None,
        "kv_transfer_params": None,
        "ec_transfer_params": None,
        "metrics": None,
    }
    return compact(message)


def compact(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _choice(answer: ChatAnswer, choice: Choice) -> dict[str, Any]:
    reply = choice.reply
    message = _message(answer, choice)
    ids = reply.token_ids[answer.faults.drop_ids :]
    return {
        "index": choice.index,
        "message": message,
        "logprobs": {"content": _logprobs(answer, reply.tokens)} if answer.with_logprobs else None,
        "finish_reason": "tool_calls" if "tool_calls" in message else reply.finish_reason,
        "stop_reason": reply.stop_reason,
        "token_ids": ids if answer.with_ids else None,
        "routed_experts": None,
    }


def _message(answer: ChatAnswer, choice: Choice) -> dict[str, Any]:
    delta = merged_delta([step.delta for step in choice.reply.steps])
    content, calls = delta.content, list[dict[str, Any]]()
    if delta.tools:
        content, calls = _parsed(_raw_text(choice.reply.tokens))
    tools = [
        {"id": answer.tool_id(choice.index, number), "type": "function", "function": call}
        for number, call in enumerate(calls)
    ]
    return {
        "role": "assistant",
        "content": content or None,
        "refusal": None,
        "annotations": None,
        "audio": None,
        "function_call": None,
        **({"tool_calls": tools} if tools else {}),
        "reasoning": None if answer.hidden else delta.reasoning or None,
    }


def _raw_text(tokens: Sequence[Token]) -> str:
    """What follows the reasoning, tool markup and all."""
    return "".join(token.text for token in tokens if not token.reasoning and token.text not in HIDDEN_MARKS)


def _parsed(raw: str) -> tuple[str | None, list[dict[str, Any]]]:
    """(content, functions) as the Hermes parser reads a finished text: arguments are parsed and written again, and a
    text in which any call is broken, such as a truncated one, is content as a whole."""
    try:
        calls = [json.loads(closed or open_) for closed, open_ in _TOOL_CALL.findall(raw)]
    except json.JSONDecodeError:
        return raw, []
    content = raw[: raw.index("<tool_call>")]
    functions = [
        {"name": call["name"], "arguments": json.dumps(call["arguments"], ensure_ascii=False)} for call in calls
    ]
    return content if content.strip() else None, functions


def _logprobs(answer: ChatAnswer, tokens: Sequence[Token]) -> list[dict[str, Any]]:
    kept = tokens[answer.faults.drop_logprobs :]
    top = answer.request.top_logprobs or 0
    return [
        {
            "token": token.text,
            "logprob": -9999.0 if token.logprob is None else token.logprob,
            "bytes": list(token.text.encode()),
            "top_logprobs": [
                {"token": text, "logprob": logprob, "bytes": list(text.encode())}
                for text, logprob in ranked(token, top)
            ],
        }
        for token in kept
    ]


def ranked(token: Token, top: int) -> list[tuple[str, float]]:
    """The sampled token, then the runners-up: made up where the script names too few."""
    if token.logprob is None or top == 0:
        return []
    given = [(token.text, token.logprob), *token.others]
    made_up = [(f"other{number}", -20.0 - number) for number in range(len(given), top)]
    return [*given, *made_up][:top]


def _usage(answer: ChatAnswer) -> dict[str, Any]:
    prompt, completion = len(answer.prompt_token_ids), sum(len(choice.reply.tokens) for choice in answer.choices)
    return {
        "prompt_tokens": prompt,
        "total_tokens": prompt + completion,
        "completion_tokens": completion,
        "prompt_tokens_details": {
            "cached_tokens": answer.cached_tokens,
            "created_cache_tokens": 0,
            "multimodal_tokens": None,
        },
        "completion_tokens_details": {"reasoning_tokens": sum(choice.reasoning_tokens for choice in answer.choices)},
    }
