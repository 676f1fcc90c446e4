"""The canned engine's replies, in the bytes and field order of vLLM 0.32, cut where a request's own parts go.

What differs per request is the reply's id, the session's two token ids in the prompt and, in a stream, the send
timestamp that stands as text in each event's content: `t=<19 digits of CLOCK_MONOTONIC in ns> `.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from tests.bench.canned import MODEL, SESSION_SLOT, Turn, session_ids

if TYPE_CHECKING:
    from collections.abc import Iterator

_CREATED = 1_796_010_818
_FINGERPRINT = "vllm-0.32.0-3055762d"
_ID = b"0" * 16
_SLOT = f"{SESSION_SLOT[0]},{SESSION_SLOT[1]}".encode()
_TIME = b"t=" + b"9" * 19 + b" "


def _logprob(word: str, logprob: float) -> dict[str, object]:
    return {"token": word, "logprob": logprob, "bytes": list(word.encode()), "top_logprobs": []}


def _usage(turn: Turn) -> dict[str, object]:
    prompt, completion = len(turn.prompt_token_ids), len(turn.completion_token_ids)
    return {
        "prompt_tokens": prompt,
        "total_tokens": prompt + completion,
        "completion_tokens": completion,
        "prompt_tokens_details": {"cached_tokens": 0, "created_cache_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 0},
    }


@dataclass(frozen=True)
class WholeReply:
    """An unstreamed reply: `head` up to the id, `middle` up to the session's ids, `tail`."""

    head: bytes
    middle: bytes
    tail: bytes

    def body(self, reply_id: bytes, session: int) -> bytes:
        return b"".join((self.head, reply_id, self.middle, b"%d,%d" % session_ids(session), self.tail))


def whole_reply(turn: Turn) -> WholeReply:
    logprobs = [_logprob(*pair) for pair in zip(turn.completion_words, turn.logprobs, strict=True)]
    message = {
        "role": "assistant",
        "content": "".join(turn.completion_words[:-1]),
        "refusal": None,
        "annotations": None,
        "audio": None,
        "function_call": None,
        "reasoning": None,
    }
    choice = {
        "index": 0,
        "message": message,
        "logprobs": {"content": logprobs},
        "finish_reason": "stop",
        "stop_reason": None,
        "token_ids": turn.completion_token_ids,
        "routed_experts": None,
    }
    usage = _usage(turn)
    usage["prompt_tokens_details"] = {"cached_tokens": 0, "created_cache_tokens": 0, "multimodal_tokens": None}
    body = msgspec.json.encode(
        {
            "id": "chatcmpl-" + _ID.decode(),
            "object": "chat.completion",
            "created": _CREATED,
            "model": MODEL,
            "choices": [choice],
            "service_tier": None,
            "system_fingerprint": _FINGERPRINT,
            "usage": usage,
            "prompt_logprobs": None,
            "prompt_token_ids": turn.prompt_token_ids,
            "prompt_text": None,
            "kv_transfer_params": None,
            "ec_transfer_params": None,
            "metrics": None,
        }
    )
    head, rest = body.split(_ID, 1)
    middle, tail = rest.split(_SLOT, 1)
    return WholeReply(head, middle, tail)


@dataclass(frozen=True)
class StreamedReply:
    """One event per token after the role event, then usage and `[DONE]`.

    `role` is cut at the id and at the session's ids, `tokens` at the id and at the timestamp, `last` and `usage` at
    the id. Every piece is whole in itself: `data: …` with its blank line.
    """

    role: tuple[bytes, bytes, bytes]
    tokens: tuple[tuple[bytes, bytes, bytes], ...]
    last: tuple[bytes, bytes]
    usage: tuple[bytes, bytes]

    def events(self, reply_id: bytes, session: int) -> Iterator[bytes]:
        """The events' bytes; each timestamp is taken as its event is asked for."""
        before, middle, after = self.role
        yield b"".join((before, reply_id, middle, b"%d,%d" % session_ids(session), after))
        for head, body, tail in self.tokens:
            yield b"".join((head, reply_id, body, b"%019d" % time.monotonic_ns(), tail))
        yield reply_id.join(self.last)
        yield reply_id.join(self.usage)
        yield b"data: [DONE]\n\n"


def _event(choices: list[dict[str, object]], extra: dict[str, object]) -> bytes:
    head = {
        "id": "chatcmpl-" + _ID.decode(),
        "object": "chat.completion.chunk",
        "created": _CREATED,
        "model": MODEL,
        "choices": choices,
    }
    return b"data: " + msgspec.json.encode(head | extra) + b"\n\n"


def _two(event: bytes) -> tuple[bytes, bytes]:
    head, tail = event.split(_ID, 1)
    return head, tail


def _three(event: bytes, mark: bytes) -> tuple[bytes, bytes, bytes]:
    head, rest = event.split(_ID, 1)
    middle, tail = rest.split(mark, 1)
    return head, middle, tail


def streamed_reply(turn: Turn) -> StreamedReply:
    role_choice: dict[str, object] = {
        "index": 0,
        "delta": {"role": "assistant", "content": ""},
        "logprobs": None,
        "finish_reason": None,
    }
    role = _event([role_choice], {"prompt_token_ids": turn.prompt_token_ids, "prompt_text": None})
    tokens = list(zip(turn.completion_words, turn.logprobs, turn.completion_token_ids, strict=True))
    events = []
    for word, logprob, token_id in tokens[:-1]:
        choice: dict[str, object] = {
            "index": 0,
            "delta": {"content": _TIME.decode()},
            "logprobs": {"content": [_logprob(word, logprob)]},
            "finish_reason": None,
            "token_ids": [token_id],
        }
        events.append(_three(_event([choice], {}), _TIME[2:-1]))
    word, logprob, token_id = tokens[-1]
    last_choice: dict[str, object] = {
        "index": 0,
        "delta": {},
        "logprobs": {"content": [_logprob(word, logprob)]},
        "finish_reason": "stop",
        "stop_reason": None,
        "token_ids": [token_id],
    }
    last = _event([last_choice], {"system_fingerprint": _FINGERPRINT})
    usage = _event([], {"usage": _usage(turn), "system_fingerprint": _FINGERPRINT})
    return StreamedReply(_three(role, _SLOT), tuple(events), _two(last), _two(usage))
