"""vLLM's `/v1/completions`, as far as a proxy needs it: one choice, text or ids as prompt, streamed or not."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from tests.fakes.answer import FINGERPRINT
from tests.fakes.chat_json import HIDDEN_MARKS, compact
from tests.fakes.chat_sse import DONE
from tests.fakes.request import CompletionRequest
from tests.fakes.script import Reply, Token
from tests.fakes.toy_tokenizer import encode


@dataclass(frozen=True)
class CompletionAnswer:
    request: CompletionRequest
    reply: Reply
    id: str
    created: int
    model: str

    @property
    def prompt_ids(self) -> list[int]:
        prompt = self.request.prompt
        return encode(prompt) if isinstance(prompt, str) else prompt

    @property
    def shown_prompt_ids(self) -> list[int] | None:
        return self.prompt_ids if self.request.return_token_ids else None


def body(answer: CompletionAnswer) -> bytes:
    reply = answer.reply
    choice = {
        "index": 0,
        "text": "".join(map(_shown, reply.tokens)),
        "logprobs": _logprobs(answer, reply.tokens, 0),
        "finish_reason": reply.finish_reason,
        "stop_reason": reply.stop_reason,
        "token_ids": reply.token_ids if answer.request.return_token_ids else None,
        "prompt_logprobs": None,
        "prompt_token_ids": answer.shown_prompt_ids,
        "routed_experts": None,
    }
    details = {"cached_tokens": 0, "created_cache_tokens": None, "multimodal_tokens": None}
    return compact(
        {
            **_head(answer, [choice]),
            "service_tier": None,
            "system_fingerprint": FINGERPRINT,
            "usage": {**_usage(answer), "prompt_tokens_details": details, "completion_tokens_details": None},
            "kv_transfer_params": None,
            "ec_transfer_params": None,
            "metrics": None,
        }
    )


def events(answer: CompletionAnswer) -> Iterator[bytes]:
    yield from (b"data: " + msgspec.json.encode(chunk) + b"\n\n" for chunk in _chunks(answer))
    yield DONE


def _chunks(answer: CompletionAnswer) -> Iterator[dict[str, Any]]:
    offset, tokens = 0, answer.reply.tokens
    for number, token in enumerate(tokens):
        last = number == len(tokens) - 1
        choice = {
            "index": 0,
            "text": _shown(token),
            "logprobs": _logprobs(answer, (token,), offset),
            "finish_reason": answer.reply.finish_reason if last else None,
            "stop_reason": answer.reply.stop_reason if last else None,
            "prompt_token_ids": None if number else answer.shown_prompt_ids,
            "token_ids": [token.id] if answer.request.return_token_ids else None,
        }
        fingerprint = last and not answer.request.include_usage
        yield _head(answer, [choice]) | ({"system_fingerprint": FINGERPRINT} if fingerprint else {})
        offset += len(token.text)
    if answer.request.include_usage:
        usage = {**_usage(answer), "prompt_tokens_details": {"cached_tokens": 0}}
        yield {**_head(answer, []), "usage": usage, "system_fingerprint": FINGERPRINT}


def _shown(token: Token) -> str:
    return "" if token.text in HIDDEN_MARKS else token.text


def _head(answer: CompletionAnswer, choices: list[dict[str, Any]]) -> dict[str, Any]:
    head = {"id": answer.id, "object": "text_completion", "created": answer.created, "model": answer.model}
    return {**head, "choices": choices}


def _logprobs(answer: CompletionAnswer, tokens: tuple[Token, ...], offset: int) -> dict[str, Any] | None:
    if answer.request.logprobs is None:
        return None
    offsets = list[int]()
    for token in tokens:
        offsets.append(offset)
        offset += len(token.text)
    return {
        "text_offset": offsets,
        "token_logprobs": [token.logprob for token in tokens],
        "tokens": [token.text for token in tokens],
        "top_logprobs": [{token.text: token.logprob} for token in tokens],
    }


def _usage(answer: CompletionAnswer) -> dict[str, Any]:
    prompt, completion = len(answer.prompt_ids), len(answer.reply.tokens)
    return {"prompt_tokens": prompt, "total_tokens": prompt + completion, "completion_tokens": completion}
