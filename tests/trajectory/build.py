"""Calls in few words, for tests: small token ids, and logprobs that tell every sampled token of a session apart."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from polarproxy.model import (
    Call,
    CallKind,
    CallStatus,
    CapturedCall,
    Completion,
    Dialect,
    FinishReason,
    Logprobs,
    LogprobsMode,
    Sampling,
    TokenIds,
    TokenSource,
)

WHEN = datetime(2026, 1, 1, tzinfo=UTC)
SAMPLING = Sampling(temperature=1.0, top_p=1.0, top_k=0, logprobs_mode=LogprobsMode.PROCESSED)


def logprob(ordinal: int, index: int, place: int) -> float:
    """Exact in float32, and of one sampled token of a session only."""
    return -(ordinal * 2048 + index * 512 + place + 1) / 4096


@dataclass(frozen=True)
class Said:
    """One choice of a call."""

    ids: Sequence[int]
    logprobs: Sequence[float | None] | Literal["own"] | None = "own"
    index: int = 0
    finish: FinishReason | None = FinishReason.STOP

    def completion(self, ordinal: int) -> Completion:
        own = [logprob(ordinal, self.index, place) for place in range(len(self.ids))]
        given = own if self.logprobs == "own" else self.logprobs
        logprobs = None if given is None else Logprobs.of(given)
        return Completion(self.index, TokenIds.of(self.ids), logprobs, self.finish)


def call(
    ordinal: int,
    prompt: Sequence[int] | None,
    *said: Said,
    status: CallStatus = CallStatus.COMPLETED,
    session_id: str = "s",
    policy_versions: tuple[int, int] = (0, 0),
    sampling: Sampling = SAMPLING,
    model: str = "tiny",
) -> Call:
    return Call(
        call_id=f"{session_id}-c{ordinal}",
        session_id=session_id,
        ordinal=ordinal,
        arrived_at=WHEN,
        dialect=Dialect.CHAT,
        path="/v1/chat/completions",
        streamed=True,
        engine="vllm",
        status=status,
        http_status=200,
        error=None,
        requested_model=model,
        served_model=model,
        prompt_token_ids=None if prompt is None else TokenIds.of(prompt),
        completions=tuple(one.completion(ordinal) for one in said),
        token_source=TokenSource.NONE if prompt is None else TokenSource.ENGINE,
        usage=None,
        sampling=sampling,
        template_digest="t1",
        policy_version_min=policy_versions[0],
        policy_version_max=policy_versions[1],
    )


def turn(
    ordinal: int,
    prompt: Sequence[int] | None,
    *said: Said,
    status: CallStatus = CallStatus.COMPLETED,
    delivered: bool = True,
    kind: CallKind = CallKind.MAIN,
) -> CapturedCall:
    """A call, and whether it reached the client."""
    return CapturedCall(call(ordinal, prompt, *said, status=status), delivered, kind)
