"""Finding out what an engine is and what it can do: the questions, and how to read the answers.

Pure: whoever asks (the proxy at start-up, `polarproxy doctor`) sends the requests and hands in the replies.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec
import xxhash

from polarproxy.errors import UNREADABLE
from polarproxy.model import LogprobsMode, Sampling

if TYPE_CHECKING:
    from collections.abc import Sequence

PROBE_PROMPT = "One two three"
_TOLERANCE = 1e-3


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """What is known of an engine."""

    name: str
    """`vllm`, `llamacpp` or `plain`."""
    model: str | None = None
    """The first model it serves. None: it did not say."""
    max_model_len: int | None = None
    logprobs_mode: LogprobsMode = LogprobsMode.UNKNOWN
    template_digest: str | None = None
    """Digest of the chat template. None: the engine does not show it."""
    defaults: Sampling = field(default_factory=Sampling)
    """Sampling parameters that it applies when a request names none. None in a field: not known."""
    thinking_budgets: bool = False
    """Whether it keeps to a `thinking_token_budget`; vLLM refuses one unless it has a reasoning parser."""
    models: tuple[str, ...] = ()
    """Every model it serves, adapters included."""


def read_json(data: bytes) -> Any:
    """The value of a JSON text; None when it is not JSON."""
    try:
        return msgspec.json.decode(data)
    except UNREADABLE:
        return None


def recognise(models: bytes) -> EngineFacts:
    """From the body of `GET /v1/models`: vLLM and llama.cpp sign their models, anything else is `plain`."""
    value = read_json(models)
    entries = value.get("data") if isinstance(value, dict) else None
    listed = entries if isinstance(entries, list) else []
    first = listed[0] if listed and isinstance(listed[0], dict) else {}
    name = {"vllm": "vllm", "llamacpp": "llamacpp"}.get(str(first.get("owned_by")), "plain")
    meta = first.get("meta") if isinstance(first.get("meta"), dict) else {}
    length = first.get("max_model_len") or (meta or {}).get("n_ctx")
    ids = tuple(entry["id"] for entry in listed if isinstance(entry, dict) and isinstance(entry.get("id"), str))
    return EngineFacts(name, first.get("id"), length if isinstance(length, int) else None, models=ids)


def template_digest(props: bytes) -> str | None:
    """From llama.cpp's `GET /props` or vLLM's `GET /tokenizer_info`."""
    value = read_json(props)
    template = value.get("chat_template") if isinstance(value, dict) else None
    return xxhash.xxh3_128_hexdigest(template.encode()) if isinstance(template, str) else None


def budget_request(model: str) -> bytes:
    """A completion of one token under a thinking budget, to see whether the engine takes one."""
    return msgspec.json.encode({"model": model, "prompt": PROBE_PROMPT, "max_tokens": 1, "thinking_token_budget": 1})


def mode_request(model: str, temperature: float) -> bytes:
    """A completion of one token, to see whether temperature moves the log-probabilities."""
    return msgspec.json.encode(
        {
            "model": model,
            "prompt": PROBE_PROMPT,
            "max_tokens": 1,
            "temperature": temperature,
            "top_p": 1.0,
            "top_k": -1,
            "seed": 1,
            "logprobs": 5,
            "return_tokens_as_token_ids": True,
        }
    )


class _Top(msgspec.Struct):
    top_logprobs: list[dict[str, float] | None] | None = None


class _Choice(msgspec.Struct):
    logprobs: _Top | None = None


class _Completion(msgspec.Struct):
    choices: list[_Choice]


def _top(reply: bytes) -> dict[str, float]:
    try:
        logprobs = msgspec.json.decode(reply, type=_Completion).choices[0].logprobs
    except (msgspec.DecodeError, IndexError):
        return {}
    return (logprobs.top_logprobs or [None])[0] or {} if logprobs else {}


def logprobs_mode(cool: bytes, hot: bytes) -> LogprobsMode:
    """From the replies to `mode_request` at temperatures 1 and 2: values that do not move are raw."""
    left, right = _top(cool), _top(hot)
    common = left.keys() & right.keys()
    if not common:
        return LogprobsMode.UNKNOWN
    moved = any(abs(left[token] - right[token]) > _TOLERANCE for token in common)
    return LogprobsMode.PROCESSED if moved else LogprobsMode.RAW


def render_request(model: str) -> bytes:
    """A chat request to be rendered, to see the model's default sampling parameters."""
    return msgspec.json.encode({"model": model, "messages": [{"role": "user", "content": PROBE_PROMPT}]})


def forced_request(model: str, ids: Sequence[int]) -> bytes:
    """A chat request of one token that is to be sampled after these ids, whatever its message says."""
    return msgspec.json.encode(
        {
            "model": model,
            "messages": [{"role": "user", "content": PROBE_PROMPT}],
            "max_tokens": 1,
            "return_token_ids": True,
            "kv_transfer_params": {"prompt_token_ids": ids},
        }
    )


def took_prompt(reply: bytes, ids: Sequence[int]) -> bool:
    """From the reply to `forced_request`: whether the engine says that these ids were its prompt."""
    value = read_json(reply)
    return isinstance(value, dict) and value.get("prompt_token_ids") == list(ids)


def rendered_ids(reply: bytes) -> list[int] | None:
    """From the reply to `render_request`: the ids. None: it has none."""
    value = read_json(reply)
    ids = value.get("token_ids") if isinstance(value, dict) else None
    return ids if isinstance(ids, list) and ids and all(isinstance(each, int) for each in ids) else None


class _Rendered(msgspec.Struct):
    sampling_params: dict[str, Any] | None = None


def default_sampling(rendered: bytes) -> Sampling:
    """From the reply of `/v1/chat/completions/render`; unknown fields stay None."""
    try:
        parameters = msgspec.json.decode(rendered, type=_Rendered).sampling_params or {}
    except msgspec.DecodeError:
        return Sampling()

    def number(name: str) -> float | None:
        value = parameters.get(name)
        return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None

    top_k = number("top_k")
    return Sampling(
        temperature=number("temperature"),
        top_p=number("top_p"),
        top_k=None if top_k is None else int(top_k),
        min_p=number("min_p"),
        presence_penalty=number("presence_penalty"),
        frequency_penalty=number("frequency_penalty"),
        repetition_penalty=number("repetition_penalty"),
    )
