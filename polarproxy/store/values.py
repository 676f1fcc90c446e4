"""From rows of `schema` to values of `model`, and no further than what could have been written; `rows` is the way there."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
from polarproxy.store.rows import completion_digest
from polarproxy.store.text import decode_pairs, decode_texts

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sqlalchemy import RowMapping


_ids = msgspec.json.Decoder(tuple[str, ...])


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


def read_completion(row: RowMapping, prompt: TokenIds | None) -> Completion:
    """The completion of a row, sampled after `prompt`; raises `StoreDamaged` when it is not what was written."""
    ids = codec.decode_ids(row["token_ids"])
    where = f"completion {row['choice_index']} of call {row['call_id']}"
    if len(ids) != row["length"]:
        raise StoreDamaged(f"{where} holds {len(ids)} tokens, {row['length']} were written")
    if completion_digest(prompt or TokenIds(), ids, row["logprobs"]) != row["digest"]:
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
