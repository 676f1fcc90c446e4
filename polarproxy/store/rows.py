"""Between values of `model` and rows of `schema`, both ways."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from polarproxy.errors import InvalidValue, StoreDamaged
from polarproxy.model import (
    Call,
    CallStatus,
    Caveat,
    Completion,
    Continued,
    Dialect,
    FinishReason,
    Logprobs,
    LogprobsMode,
    Loss,
    Prompting,
    PromptMode,
    PromptOutcome,
    Reward,
    Sampling,
    Session,
    SessionStatus,
    Shape,
    Timing,
    TokenIds,
    TokenSource,
    TurnMark,
    Usage,
)
from polarproxy.store import codec
from polarproxy.store.text import decode_pairs, decode_texts, encode_pairs, encode_texts

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sqlalchemy import RowMapping

    from polarproxy.store.bases import Base

Row = dict[str, Any]

_ids = msgspec.json.Decoder(tuple[str, ...])


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


def read_session(row: RowMapping, reward: Reward | None) -> Session:
    """The session of a row of `sessions`."""
    return Session(
        session_id=row["session_id"],
        created_at=row["created_at"],
        origin=row["origin"],
        status=SessionStatus(row["status"]),
        task_id=row["task_id"],
        group_id=row["group_id"],
        harness=row["harness"],
        model=row["model"],
        metadata=decode_pairs(row["metadata"]),
        prompts=None if row["prompts"] is None else PromptMode(row["prompts"]),
        reward=reward,
    )


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
            "digest": _digest(
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


def read_mark(row: RowMapping) -> TurnMark | None:
    """What a completion is recognised by; None when nothing is to go on from it. Raises `StoreDamaged`."""
    if row["turn_key"] is None:
        return None
    if row["turn_spelling"] is None or row["turn_template"] is None:
        raise StoreDamaged(f"a completion of call {row['call_id']} has half a mark")
    try:
        ids = _ids.decode(row["turn_ids"] or "")
    except msgspec.DecodeError as error:
        raise StoreDamaged(f"the mark of a completion of call {row['call_id']} cannot be read: {error}") from error
    return TurnMark(row["turn_key"], row["turn_spelling"], row["turn_reasoning"], ids, row["turn_template"])


def _digest(prompt: TokenIds, sampled: TokenIds, logprobs: bytes | None) -> bytes:
    return codec.digest(prompt.raw, sampled.raw, logprobs or b"")


def read_completion(row: RowMapping, prompt: TokenIds | None) -> Completion:
    """The completion of a row, sampled after `prompt`; raises `StoreDamaged` when it is not what was written."""
    ids = codec.decode_ids(row["token_ids"])
    where = f"completion {row['choice_index']} of call {row['call_id']}"
    if len(ids) != row["length"]:
        raise StoreDamaged(f"{where} holds {len(ids)} tokens, {row['length']} were written")
    if _digest(prompt or TokenIds(), ids, row["logprobs"]) != row["digest"]:
        raise StoreDamaged(f"the tokens or logprobs of {where} do not match their digest")
    if row["logprobs"] is not None and len(row["logprobs"]) % 4:
        raise StoreDamaged(f"{where}: its logprobs take {len(row['logprobs'])} bytes, not a multiple of 4")
    return Completion(
        index=row["choice_index"],
        token_ids=ids,
        logprobs=None if row["logprobs"] is None else Logprobs(row["logprobs"]),
        finish_reason=_finish_reason(row["finish_reason"], where),
        stop_reason=row["stop_reason"],
        mark=read_mark(row),
    )


def _finish_reason(text: str | None, where: str) -> FinishReason | None:
    try:
        return None if text is None else FinishReason(text)
    except ValueError as error:
        raise StoreDamaged(f"{where} ended for a reason that nobody wrote: {text!r}") from error


def read_call(row: RowMapping, prompt: TokenIds | None, completions: Iterable[Completion], body: bytes) -> Call:
    """The call of a row of `calls`, with what other rows hold of it.

    Raises `StoreDamaged` when a value is none that could have been written, or a completion is missing.
    """
    choices = tuple(completions)
    if len(choices) != row["choices"]:
        raise StoreDamaged(f"call {row['call_id']} has {len(choices)} completions, {row['choices']} were written")
    try:
        return _call(row, prompt, choices, body)
    except (ValueError, msgspec.DecodeError, InvalidValue) as error:
        raise StoreDamaged(f"call {row['call_id']} holds a value that nobody wrote: {error}") from error


def _call(row: RowMapping, prompt: TokenIds | None, completions: tuple[Completion, ...], body: bytes) -> Call:
    return Call(
        call_id=row["call_id"],
        session_id=row["session_id"],
        ordinal=row["ordinal"],
        arrived_at=row["arrived_at"],
        dialect=Dialect(row["dialect"]),
        path=row["path"],
        streamed=row["streamed"],
        engine=row["engine"],
        upstream=row["upstream"],
        status=CallStatus(row["status"]),
        http_status=row["http_status"],
        error=row["error"],
        requested_model=row["requested_model"],
        served_model=row["served_model"],
        prompt_token_ids=prompt,
        completions=completions,
        token_source=TokenSource(row["token_source"]),
        usage=_read_usage(row),
        sampling=_read_sampling(row),
        headers=decode_pairs(row["headers"]),
        request_body=body,
        tools_digest=row["tools_digest"],
        shape=_read_shape(row),
        template_digest=row["template_digest"],
        caveat=None if row["caveat"] is None else Caveat(row["caveat"]),
        losses=tuple(Loss(where, why) for where, why in decode_pairs(row["losses"] or "[]")),
        engine_request_id=row["engine_request_id"],
        policy_version_min=row["policy_version_min"],
        policy_version_max=row["policy_version_max"],
        timing=Timing(row["first_byte_us"], row["last_byte_us"]),
        prompting=_read_prompting(row),
    )


def _read_prompting(row: RowMapping) -> Prompting | None:
    if row["prompt_outcome"] is None:
        return None
    named = row["continued_call_id"]
    return Prompting(
        outcome=PromptOutcome(row["prompt_outcome"]),
        continued=None if named is None else Continued(named, row["continued_choice"], row["continued_length"]),
        reason=row["prompt_reason"],
        detail=row["prompt_detail"],
    )


def _read_usage(row: RowMapping) -> Usage | None:
    if row["usage_prompt_tokens"] is None:
        return None
    return Usage(
        prompt_tokens=row["usage_prompt_tokens"],
        completion_tokens=row["usage_completion_tokens"],
        cached_tokens=row["usage_cached_tokens"],
        reasoning_tokens=row["usage_reasoning_tokens"],
    )


def _read_shape(row: RowMapping) -> Shape | None:
    if row["shape_messages"] is None:
        return None
    return Shape(
        messages=row["shape_messages"],
        tools=decode_texts(row["shape_tools"]),
        wants_json=row["shape_json"],
        system_opening=row["system_opening"],
        last_opening=row["last_opening"],
    )


def _read_sampling(row: RowMapping) -> Sampling:
    return Sampling(
        temperature=row["temperature"],
        top_p=row["top_p"],
        top_k=row["top_k"],
        min_p=row["min_p"],
        presence_penalty=row["presence_penalty"],
        frequency_penalty=row["frequency_penalty"],
        repetition_penalty=row["repetition_penalty"],
        max_tokens=row["max_tokens"],
        seed=None if row["seed"] is None else int(row["seed"]),
        n=row["n"],
        logprobs_mode=LogprobsMode(row["logprobs_mode"]),
    )
