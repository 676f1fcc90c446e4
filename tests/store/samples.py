"""Calls to store: one plain maker for examples, and Hypothesis strategies for all that a call can be."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from hypothesis import strategies as st

from polarproxy.model import (
    Call,
    CallStatus,
    Completion,
    Continued,
    Dialect,
    FinishReason,
    Logprobs,
    LogprobsMode,
    Prompting,
    PromptOutcome,
    Sampling,
    Session,
    Shape,
    Timing,
    TokenIds,
    TokenSource,
    TurnMark,
    Usage,
)
from polarproxy.store.items import NewCall

NOW = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)


def a_session(session_id: str = "s1", **fields: Any) -> Session:
    return Session(session_id, fields.pop("created_at", NOW), **fields)


def a_completion(ids: Sequence[int], index: int = 0, **fields: Any) -> Completion:
    logprobs = fields.pop("logprobs", Logprobs.of([-0.5] * len(ids)))
    return Completion(index, TokenIds.of(ids), logprobs, fields.pop("finish_reason", FinishReason.STOP), **fields)


def a_call(
    call_id: str = "c1",
    ordinal: int = 0,
    prompt: Sequence[int] | None = (1, 2, 3),
    *sampled: Sequence[int],
    session_id: str = "s1",
    **fields: Any,
) -> Call:
    """A call that sampled one completion for each of `sampled`."""
    known: dict[str, Any] = {
        "call_id": call_id,
        "session_id": session_id,
        "ordinal": ordinal,
        "arrived_at": NOW,
        "dialect": Dialect.CHAT,
        "path": "/v1/chat/completions",
        "streamed": False,
        "engine": "vllm",
        "status": CallStatus.COMPLETED,
        "http_status": 200,
        "error": None,
        "requested_model": "m",
        "served_model": "m",
        "prompt_token_ids": None if prompt is None else TokenIds.of(prompt),
        "completions": tuple(a_completion(ids, index) for index, ids in enumerate(sampled)),
        "token_source": TokenSource.ENGINE,
        "usage": None,
        "sampling": Sampling(),
        "request_body": b"{}",
    }
    return Call(**(known | fields))


def new_call(call: Call, **texts: bytes) -> NewCall:
    return NewCall(call, a_session(call.session_id), {int(key[1:]): text for key, text in texts.items()})


_texts = st.text(st.characters() | st.sampled_from("\x00\x1a\ud83d\udcff"), max_size=12)
"""Also such as no encoding writes and no PostgreSQL takes."""
_maybe_text = st.none() | _texts
_digests = st.none() | st.text("0123456789abcdef", min_size=32, max_size=32)
_counts = st.integers(0, 2**31 - 1)
_large = st.integers(0, 2**63 - 1)
_floats = st.none() | st.floats(-1e6, 1e6)
_ids = st.lists(st.integers(0, 2**31 - 1) | st.integers(0, 5), max_size=40).map(TokenIds.of)
_logprob_values = st.none() | st.floats(width=32, allow_nan=True, allow_infinity=True)

_digest_bytes = st.binary(min_size=16, max_size=16)
_call_ids = st.lists(st.text(max_size=12), max_size=2).map(tuple)
_marks = st.builds(
    TurnMark, _digest_bytes, _digest_bytes, st.none() | _digest_bytes, _call_ids, st.text("0af", max_size=32)
)
_continued = st.builds(Continued, st.text(max_size=12), _counts, _counts)
_promptings = st.none() | st.one_of(
    st.builds(Prompting, st.just(PromptOutcome.FIRST)),
    st.builds(Prompting, st.just(PromptOutcome.EXACT), _continued),
    st.builds(
        Prompting,
        st.sampled_from([PromptOutcome.FALLBACK, PromptOutcome.FAULT]),
        st.none() | _continued,
        _texts,
        _maybe_text,
    ),
)
_usages = st.builds(Usage, _large, _large, st.none() | _large, st.none() | _large)
_samplings = st.builds(
    Sampling,
    *[_floats] * 2,
    st.none() | st.integers(-1, 2**63 - 1),
    *[_floats] * 4,
    st.none() | _large,
    st.none() | st.integers(-(2**100), 2**100),
    st.integers(1, 2**63 - 1),
    st.sampled_from(LogprobsMode),
)
_openings = st.none() | st.text("0123456789abcdef", min_size=16, max_size=16)
_shapes = st.builds(Shape, _counts, st.lists(_texts, max_size=3).map(tuple), st.booleans(), _openings, _openings)


@st.composite
def completions(draw: st.DrawFn, index: int) -> Completion:
    ids = draw(_ids)
    values = draw(st.none() | st.lists(_logprob_values, min_size=len(ids), max_size=len(ids)) | st.just([-1.0]))
    logprobs = None if values is None else Logprobs.of(values)
    finish = draw(st.none() | st.sampled_from(FinishReason))
    return Completion(index, ids, logprobs, finish, draw(_maybe_text), draw(st.none() | _marks))


@st.composite
def calls(draw: st.DrawFn, call_id: str = "c1", session_id: str = "s1", ordinal: int = 0) -> Call:
    """Any call; its version span is in order, as the model requires."""
    choices = draw(st.lists(st.integers(0, 6), unique=True, max_size=3))
    versions = sorted(draw(st.tuples(_counts, _counts)))
    return Call(
        call_id=call_id,
        session_id=session_id,
        ordinal=ordinal,
        arrived_at=draw(st.datetimes(datetime(1970, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC))),
        dialect=Dialect.CHAT,
        path=draw(_texts),
        streamed=draw(st.booleans()),
        engine=draw(st.sampled_from(["vllm", "llamacpp", "plain"])),
        upstream=draw(_maybe_text),
        status=draw(st.sampled_from(CallStatus)),
        http_status=draw(st.none() | st.integers(100, 599)),
        error=draw(_maybe_text),
        requested_model=draw(_maybe_text),
        served_model=draw(_maybe_text),
        prompt_token_ids=draw(st.none() | _ids),
        completions=tuple([draw(completions(index)) for index in sorted(choices)]),
        token_source=draw(st.sampled_from(TokenSource)),
        usage=draw(st.none() | _usages),
        sampling=draw(_samplings),
        headers=tuple(draw(st.lists(st.tuples(_texts, _texts), max_size=3))),
        request_body=draw(st.binary(max_size=60)),
        tools_digest=draw(_digests),
        shape=draw(st.none() | _shapes),
        template_digest=draw(_digests),
        engine_request_id=draw(_maybe_text),
        policy_version_min=versions[0],
        policy_version_max=versions[1],
        timing=Timing(draw(st.none() | _large), draw(st.none() | _large)),
        prompting=draw(_promptings),
    )
