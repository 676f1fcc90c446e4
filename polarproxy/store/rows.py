"""From values of `model` to rows of `schema`; `values` is the way back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from polarproxy.model import (
    Call,
    Session,
    TokenIds,
    TurnMark,
)
from polarproxy.store import codec
from polarproxy.store.text import encode_pairs, encode_texts

if TYPE_CHECKING:
    from polarproxy.store.bases import Base

Row = dict[str, Any]


def session_row(session: Session) -> Row:
    """The row of `sessions`."""
    return {
        "session_id": session.session_id,
        "created_at": session.created_at,
        "origin": session.origin,
        "status": session.status.value,
        "task_id": session.task_id,
        "group_id": session.group_id,
        "harness": session.harness,
        "model": session.model,
        "metadata": encode_pairs(session.metadata),
        "prompts": session.prompts and session.prompts.value,
    }


def call_row(call: Call, base: Base | None, body_digest: bytes | None) -> Row:
    """The row of `calls`; the prompt as what lies beyond `base`, not compressed yet."""
    prompt, usage, sampling, shape = call.prompt_token_ids, call.usage, call.sampling, call.shape
    prompting, continued = call.prompting, call.prompting and call.prompting.continued
    suffix = None if prompt is None else prompt if base is None else prompt.cut(base.length)
    return {
        "call_id": call.call_id,
        "session_id": call.session_id,
        "ordinal": call.ordinal,
        "arrived_at": call.arrived_at,
        "dialect": call.dialect.value,
        "path": call.path,
        "streamed": call.streamed,
        "engine": call.engine,
        "upstream": call.upstream,
        "status": call.status.value,
        "http_status": call.http_status,
        "error": call.error,
        "requested_model": call.requested_model,
        "served_model": call.served_model,
        "token_source": call.token_source.value,
        "prompt_length": None if prompt is None else len(prompt),
        "prompt_digest": None if prompt is None else codec.digest(prompt.raw),
        "base_call_id": None if base is None else base.call_id,
        "base_choice": None if base is None else base.choice,
        "base_length": None if base is None else base.length,
        "prompt_suffix": None if suffix is None else suffix.raw,
        "usage_prompt_tokens": usage and usage.prompt_tokens,
        "usage_completion_tokens": usage and usage.completion_tokens,
        "usage_cached_tokens": usage and usage.cached_tokens,
        "usage_reasoning_tokens": usage and usage.reasoning_tokens,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k,
        "min_p": sampling.min_p,
        "presence_penalty": sampling.presence_penalty,
        "frequency_penalty": sampling.frequency_penalty,
        "repetition_penalty": sampling.repetition_penalty,
        "max_tokens": sampling.max_tokens,
        "seed": None if sampling.seed is None else str(sampling.seed),
        "n": sampling.n,
        "logprobs_mode": sampling.logprobs_mode.value,
        "headers": encode_pairs(call.headers),
        "body_digest": body_digest,
        "tools_digest": call.tools_digest,
        "shape_messages": shape and shape.messages,
        "shape_tools": shape and encode_texts(shape.tools),
        "shape_json": shape and shape.wants_json,
        "system_opening": shape and shape.system_opening,
        "last_opening": shape and shape.last_opening,
        "template_digest": call.template_digest,
        "caveat": call.caveat and call.caveat.value,
        "losses": encode_pairs((loss.where, loss.why) for loss in call.losses) if call.losses else None,
        "choices": len(call.completions),
        "engine_request_id": call.engine_request_id,
        "policy_version_min": call.policy_version_min,
        "policy_version_max": call.policy_version_max,
        "first_byte_us": call.timing.first_byte_us,
        "last_byte_us": call.timing.last_byte_us,
        "prompt_outcome": prompting and prompting.outcome.value,
        "prompt_reason": prompting and prompting.reason,
        "prompt_detail": prompting and prompting.detail,
        "continued_call_id": continued and continued.call_id,
        "continued_choice": continued and continued.choice,
        "continued_length": continued and continued.length,
    }


def completion_rows(call: Call) -> list[Row]:
    """The rows of `completions`, ids not compressed yet; a digest covers prompt, sampled tokens and logprobs."""
    prompt = call.prompt_token_ids or TokenIds()
    return [
        {
            "call_id": call.call_id,
            "choice_index": completion.index,
            "length": len(completion.token_ids),
            "token_ids": completion.token_ids.raw,
            "logprobs": None if completion.logprobs is None else completion.logprobs.raw,
            "digest": completion_digest(
                prompt, completion.token_ids, None if completion.logprobs is None else completion.logprobs.raw
            ),
            "finish_reason": completion.finish_reason and completion.finish_reason.value,
            "stop_reason": completion.stop_reason,
            **_mark_row(completion.mark),
        }
        for completion in call.completions
    ]


_NO_MARK: Row = dict.fromkeys(("turn_key", "turn_spelling", "turn_reasoning", "turn_ids", "turn_template"))


def _mark_row(mark: TurnMark | None) -> Row:
    if mark is None:
        return _NO_MARK
    return {
        "turn_key": mark.key,
        "turn_spelling": mark.spelling,
        "turn_reasoning": mark.reasoning,
        "turn_ids": msgspec.json.encode(mark.ids).decode(),
        "turn_template": mark.template,
    }


def completion_digest(prompt: TokenIds, sampled: TokenIds, logprobs: bytes | None) -> bytes:
    """Of a completion with the prompt that it was sampled after."""
    return codec.digest(prompt.raw, sampled.raw, logprobs or b"")
