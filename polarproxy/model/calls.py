"""Sessions, calls and what was sampled: values that cannot be wrong."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING

from polarproxy.errors import InvalidValue
from polarproxy.model.terms import (
    CallKind,
    CallStatus,
    Caveat,
    Dialect,
    FinishReason,
    LogprobsMode,
    SessionStatus,
    TokenSource,
)

if TYPE_CHECKING:
    from datetime import datetime

    from polarproxy.model.prompting import Prompting, PromptMode, TurnMark
    from polarproxy.model.rewards import Reward
    from polarproxy.model.shapes import Shape
    from polarproxy.model.tokens import Logprobs, TokenIds


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts as the engine reported them. None: the engine did not say."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Sampling:
    """Sampling parameters of a call. None: neither the client nor the engine's known defaults said."""

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    max_tokens: int | None = None
    seed: int | None = None
    n: int = 1
    logprobs_mode: LogprobsMode = LogprobsMode.UNKNOWN


FORCEABLE = tuple(field.name for field in fields(Sampling) if field.name not in ("n", "logprobs_mode"))
"""The parameters that can be set for a whole session."""


@dataclass(frozen=True, slots=True)
class Completion:
    """One sampled choice of a call."""

    index: int
    """The choice index; 0 unless the client asked for n > 1."""
    token_ids: TokenIds
    """C: the sampled tokens, the stop token included when it was sampled. Empty when the engine gave no ids."""
    logprobs: Logprobs | None
    """L: one value per sampled token. None: the engine gave none. The lengths may differ; then nothing is trained."""
    finish_reason: FinishReason | None
    """None: the reply was cut before the engine said why it ended."""
    stop_reason: str | None = None
    """The stop string or stop token id that ended it, as text. None: an end-of-sequence token, or not ended by a stop."""
    mark: TurnMark | None = None
    """None: nothing is to go on from it exactly."""


@dataclass(frozen=True, slots=True)
class Loss:
    """Something that one dialect says and another cannot; it was left out of the translation."""

    where: str
    """The place in the client's request or reply, as a path: `tools[2]`, `messages[0].content[1]`."""
    why: str
    """What it is and what was done about it, for a person to read."""


@dataclass(frozen=True, slots=True)
class Timing:
    """When things happened, in microseconds after the arrival of the request (a monotonic clock)."""

    first_byte_us: int | None = None
    """First byte of the engine's reply. None: there was none."""
    last_byte_us: int | None = None
    """Last byte of the engine's reply that was read. None: there was none."""


@dataclass(frozen=True, slots=True)
class Call:
    """One exchange with the model, exactly as it happened. Written once, never changed."""

    call_id: str
    session_id: str
    ordinal: int
    """Place in the session by arrival, from 0; the only order there is."""
    arrived_at: datetime
    """UTC. For people; never used to order calls."""
    dialect: Dialect
    path: str
    streamed: bool
    engine: str
    status: CallStatus
    http_status: int | None
    """Status of the engine's answer. None: it never answered."""
    error: str | None
    """What went wrong, in words. None: nothing did."""
    requested_model: str | None
    served_model: str | None
    prompt_token_ids: TokenIds | None
    """P: exactly what the engine conditioned on. None: the engine did not say."""
    completions: tuple[Completion, ...]
    token_source: TokenSource
    usage: Usage | None
    sampling: Sampling
    upstream: str | None = None
    """Base URL of the engine that was asked, without user and password. None: recorded before that was kept."""
    headers: tuple[tuple[str, str], ...] = ()
    """Request headers kept for attribution and lineage; secrets are never among them."""
    request_body: bytes = b""
    """The request as the client sent it."""
    tools_digest: str | None = None
    """Digest of the request's `tools`. None: it had none."""
    shape: Shape | None = None
    """None: the request could not be read, or was recorded by a version that kept no shapes."""
    template_digest: str | None = None
    """Digest of the engine's chat template. None: the engine does not show it."""
    caveat: Caveat | None = None
    """None: the ids tell all."""
    losses: tuple[Loss, ...] = ()
    """What the client said and the engine was not told, or the engine said and the client was not."""
    engine_request_id: str | None = None
    policy_version_min: int = 0
    """The policy version in force when the request was sent to the engine."""
    policy_version_max: int = 0
    """The policy version in force when the last token was read."""
    timing: Timing = field(default_factory=Timing)
    prompting: Prompting | None = None
    """None: no exact prompt was asked for."""

    def __post_init__(self) -> None:
        if self.ordinal < 0:
            raise InvalidValue(f"call {self.call_id}: ordinal {self.ordinal} is negative")
        indices = [completion.index for completion in self.completions]
        if len(set(indices)) != len(indices):
            raise InvalidValue(f"call {self.call_id}: two completions share an index ({indices})")
        if self.policy_version_min > self.policy_version_max:
            raise InvalidValue(
                f"call {self.call_id}: policy version {self.policy_version_min} at its start"
                f" is later than {self.policy_version_max} at its end"
            )


@dataclass(frozen=True, slots=True)
class Label:
    """What a person said that a call was for, or that what was said before is taken back."""

    kind: CallKind | None
    """None: the label before it is taken back, and the evidence decides again."""
    by: str
    """Who said so."""
    at: datetime
    """UTC."""
    note: str | None = None


@dataclass(frozen=True, slots=True)
class CapturedCall:
    """A call together with the facts that were appended to it later."""

    call: Call
    delivered: bool = False
    """Whether the whole reply is known to have been handed to the client."""
    kind: CallKind = CallKind.MAIN
    """What it is taken to have been for; `trajectory.kinds` decides it from the whole session."""
    labels: tuple[Label, ...] = ()
    """All that was ever said about it, in order; the last one counts."""

    @property
    def label(self) -> Label | None:
        """The label in force. None: nobody gave one, or it was taken back."""
        return self.labels[-1] if self.labels and self.labels[-1].kind is not None else None


@dataclass(frozen=True, slots=True)
class Session:
    """One rollout as recorded."""

    session_id: str
    created_at: datetime
    origin: str = "api"
    """How the session came to be: `api` (made on purpose), `path`, `key`, `header`, `harness` (the harness's own session
    header), or `root` (an unattributed conversation)."""
    status: SessionStatus = SessionStatus.OPEN
    task_id: str | None = None
    group_id: str | None = None
    """Sibling sessions of one task share it. None: the session stands alone and has no baseline."""
    harness: str | None = None
    model: str | None = None
    metadata: tuple[tuple[str, str], ...] = ()
    prompts: PromptMode | None = None
    """Where its prompts come from. None: as the proxy is set."""
    reward: Reward | None = None
    """The latest reward. None: nothing has set one, which is not the same as 0."""
