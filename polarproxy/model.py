"""The nouns: what a rollout, a call and its tokens are, as values that cannot be wrong.

Only what happened is described here. A `Call` is written once; what becomes known later (delivered, a reward, a changed
kind) is a fact of its own. Branches, groups, samples and batches are views, computed elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import xxhash

from polarproxy.errors import InvalidValue

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from datetime import datetime

    from numpy.typing import NDArray

TOKEN_BYTES = 4
_INT32 = np.dtype("<i4")
_FLOAT32 = np.dtype("<f4")


@dataclass(frozen=True)
class TokenIds:
    """A sequence of token ids, held as the bytes of little-endian int32.

    The bytes are what is hashed, compared, compressed and stored; `array` is a read-only view of them, without a copy.
    """

    raw: bytes = b""

    def __post_init__(self) -> None:
        if len(self.raw) % TOKEN_BYTES:
            raise InvalidValue(f"token ids take 4 bytes each; {len(self.raw)} bytes is not a multiple of 4")

    @classmethod
    def of(cls, ids: Iterable[int]) -> TokenIds:
        """From integers; raises `InvalidValue` when one does not fit into int32 or is negative."""
        try:
            array = np.fromiter(ids, dtype=np.int64)
        except (OverflowError, TypeError, ValueError) as error:
            raise InvalidValue(f"token ids must be integers below 2**31: {error}") from error
        if array.size and (array.min() < 0 or array.max() > np.iinfo(np.int32).max):
            raise InvalidValue(f"token ids must lie in 0..2**31-1, found {array.min()}..{array.max()}")
        return cls(array.astype(_INT32).tobytes())

    @cached_property
    def array(self) -> NDArray[np.int32]:
        """The ids, int32 `[len]`, read-only."""
        return np.frombuffer(self.raw, dtype=_INT32)

    def __len__(self) -> int:
        return len(self.raw) // TOKEN_BYTES

    def __iter__(self) -> Iterator[int]:
        return iter(self.array.tolist())

    def __add__(self, other: TokenIds) -> TokenIds:
        return TokenIds(self.raw + other.raw)

    def startswith(self, prefix: TokenIds) -> bool:
        """Whether these ids begin with all of `prefix`."""
        return self.raw.startswith(prefix.raw)

    def cut(self, start: int, stop: int | None = None) -> TokenIds:
        """The ids `[start:stop]`, counted in tokens."""
        return TokenIds(self.raw[start * TOKEN_BYTES : None if stop is None else stop * TOKEN_BYTES])


@dataclass(frozen=True)
class Logprobs:
    """Log-probabilities (natural logarithm) of sampled tokens, held as the bytes of little-endian float32.

    NaN stands for a value that the engine left out or that was not a number; nothing is ever filled in.
    """

    raw: bytes = b""

    def __post_init__(self) -> None:
        if len(self.raw) % TOKEN_BYTES:
            raise InvalidValue(f"logprobs take 4 bytes each; {len(self.raw)} bytes is not a multiple of 4")

    @classmethod
    def of(cls, values: Iterable[float | None]) -> Logprobs:
        """From numbers; None becomes NaN."""
        numbers = [float("nan") if value is None else value for value in values]
        return cls(np.asarray(numbers, dtype=_FLOAT32).tobytes())

    @cached_property
    def array(self) -> NDArray[np.float32]:
        """The values, float32 `[len]`, read-only."""
        return np.frombuffer(self.raw, dtype=_FLOAT32)

    def __len__(self) -> int:
        return len(self.raw) // TOKEN_BYTES

    def __iter__(self) -> Iterator[float]:
        return iter(self.array.tolist())


class Dialect(StrEnum):
    """A provider's API format, as spoken by the client."""

    CHAT = "chat"
    """OpenAI Chat Completions."""
    COMPLETIONS = "completions"
    """OpenAI Completions (text or token ids in, text out)."""
    RESPONSES = "responses"
    """OpenAI Responses, over HTTP or WebSocket."""
    MESSAGES = "messages"
    """Anthropic Messages."""
    GEMINI = "gemini"
    """Gemini generateContent."""
    BEDROCK = "bedrock"
    """AWS Bedrock Converse."""


class TokenSource(StrEnum):
    """Where the token ids of a call come from."""

    ENGINE = "engine"
    NONE = "none"


class FinishReason(StrEnum):
    """Why sampling of one completion ended, in the engine's own words."""

    STOP = "stop"
    LENGTH = "length"
    TOOL_CALLS = "tool_calls"
    ABORT = "abort"
    OTHER = "other"


class CallStatus(StrEnum):
    """How an exchange with the model ended."""

    COMPLETED = "completed"
    """The engine finished its reply."""
    REJECTED = "rejected"
    """The engine refused the request (a 4xx); nothing was sampled."""
    ENGINE_ERROR = "engine_error"
    """The engine failed, or went away in the middle; what was sampled until then is kept."""
    TIMEOUT = "timeout"
    """The engine was silent for longer than the limit; what was sampled until then is kept."""
    ABORTED = "aborted"
    """The client left before the end; what was sampled until then is kept."""


class CallKind(StrEnum):
    """What a call was for. Only `main` and `subagent` are trained by default."""

    MAIN = "main"
    SUBAGENT = "subagent"
    """Work that the main agent handed to another one."""
    COMPACTION = "compaction"
    """The harness has its own history replaced by a summary."""
    SUMMARY = "summary"
    """What was done, in short, for somebody else: a session's summary, a commit message."""
    TITLE = "title"
    PROBE = "probe"
    """A question of the harness for itself: which model to take (a router), what a web search finds, whether a key works."""
    FALLBACK = "fallback"
    """The work of a call that failed, asked of another model. Only a label says so."""
    UNKNOWN = "unknown"
    """It does not look like the work, and nothing says what it is."""


class LogprobsMode(StrEnum):
    """Which distribution the recorded log-probabilities belong to (vLLM's `--logprobs-mode`)."""

    RAW = "raw"
    """Before temperature, top-k, top-p and penalties."""
    PROCESSED = "processed"
    """After them: the distribution that the token was really drawn from."""
    UNKNOWN = "unknown"


class FallbackReason(StrEnum):
    """Why the engine rendered a prompt that was to continue recorded tokens. `sentence` says it to a person."""

    sentence: str

    def __new__(cls, value: str, sentence: str) -> FallbackReason:
        reason = str.__new__(cls, value)
        reason._value_ = value
        reason.sentence = sentence
        return reason

    NOT_RECORDED = (
        "not_recorded",
        "no turn of the assistant in this history was recorded here after these very messages, tools and settings"
        " (edited, compacted, written by the client, or from before the recording)",
    )
    REASONING_EDITED = "reasoning_edited", "the reasoning that came back is not the reasoning that was sampled"
    NO_TOKENS = "no_tokens", "the turn was recorded without the ids of its prompt or of what was sampled"
    PREFILL = "prefill", "the last message is the assistant's: the engine is asked to go on within a turn"
    UNFIT_REQUEST = (
        "unfit_request",
        "the request asks for another kind of prompt (no generation prompt, a continued message, echo, beam search,"
        " truncation, or transfer parameters of its own)",
    )
    UNREADABLE = "unreadable", "the messages of the request cannot be read"
    MEDIA = "media", "the conversation holds images, sound or documents, with which the engine ignores prompt ids"
    ENGINE_UNABLE = "engine_unable", "the engine does not take prompt ids, or cannot render a conversation"
    RENDER_FAILED = "render_failed", "the engine could not render the rest of the conversation"
    TEMPLATE_REFUSED = "template_refused", "the chat template does not show where such a turn ends"
    TEMPLATE_CHANGED = "template_changed", "the turn was recorded under another chat template or tokenizer"
    TURN_HIDDEN = "turn_hidden", "the chat template renders nothing of this turn, so its end cannot be found"
    HEAD_CHANGES = "head_changes", "the messages after the turn change how the template renders those before it"
    NO_BOUNDARY = "no_boundary", "between this turn and the next message the template has no clear end of a turn"
    CLOSE_DIFFERS = (
        "close_differs",
        "the turn ended with another token than the one by which the template ends such a turn",
    )
    CUT_IN_HEADER = "cut_in_header", "the turn was cut before its text began, and the template cannot close it there"
    TOO_LONG = "too_long", "the exact prompt leaves no room in the engine's context"
    ENGINE_REFUSED = "engine_refused", "the engine refused the request with an exact prompt, and was asked without one"
    STORE_FAILED = "store_failed", "the recorded turns could not be read"
    LEFT = "left", "the client left before the prompt was made"
    CALL_IDS = "call_ids", "the template shows the ids of tool calls, and the client made ids of its own"


class Caveat(StrEnum):
    """Why the tokens of a call are not what a policy sampled after these prompt ids, however exact they are."""

    NOT_SAMPLED = "not_sampled"
    """Beam search chose them."""
    MEDIA = "media"
    """The prompt held images or sound, of which the ids are only placeholders."""
    OTHER_PROMPT = "other_prompt"
    """The engine was given exact prompt ids and says that it used others, or does not say."""
    SEVERAL_PROMPTS = "several_prompts"
    """The request held several prompts: their tokens cannot be those of one call, and it is recorded without ids."""


class PromptMode(StrEnum):
    """Where the prompts of a session come from."""

    TEMPLATE = "template"
    """The engine renders each conversation anew with its chat template, as it does for any client."""
    EXACT = "exact"
    """A prompt goes on from the recorded tokens of the turn that its request continues, wherever that can be proved."""


class PromptOutcome(StrEnum):
    """What became of the prompt of a call that was to be exact."""

    FIRST = "first"
    """There was nothing to go on from: the conversation holds no reply yet."""
    EXACT = "exact"
    """The prompt begins with the recorded tokens of an earlier turn, and the engine says that it used it."""
    FALLBACK = "fallback"
    """The engine rendered it."""
    FAULT = "fault"
    """The engine was given an exact prompt and did not use it; the call is not trained."""


class SessionStatus(StrEnum):
    """How a rollout ended; `open` while calls may still come."""

    OPEN = "open"
    COMPLETED = "completed"
    AGENT_ERROR = "agent_error"
    TIMEOUT = "timeout"
    INFRA_ERROR = "infra_error"
    EVALUATOR_ERROR = "evaluator_error"
    ABORTED = "aborted"


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


@dataclass(frozen=True, slots=True)
class TurnMark:
    """What a reply is recognised by when a later request repeats it. Digests have 16 bytes."""

    key: bytes
    """Of all that was said up to and including it, by meaning."""
    spelling: bytes
    """Of its text and arguments exactly as written."""
    reasoning: bytes | None
    """Of its reasoning. None: it has none, or the client was shown none."""
    ids: tuple[str, ...]
    """The ids of its tool calls."""
    template: str
    """Fingerprint of the chat template, as its renderings show it."""


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


OPENING_WORDS = 5
_FAR_ENOUGH = 1024
"""Characters of a text in which its first words stand."""


def opening(text: str) -> str | None:
    """Digest of the first five words of a text, as 16 hexadecimal digits. None: it has fewer."""
    words = text[:_FAR_ENOUGH].split()[:OPENING_WORDS]
    if len(words) < OPENING_WORDS:
        return None
    return xxhash.xxh3_64_hexdigest(" ".join(words).encode("utf-8", "surrogatepass"))


@dataclass(frozen=True, slots=True)
class Shape:
    """What a request looks like, without its prose. Kept also where request bodies are not."""

    messages: int
    """How many messages it holds, as the client's dialect counts them."""
    tools: tuple[str, ...]
    """Names of the tools it offers, in its order; at most 512 names of at most 128 characters."""
    wants_json: bool
    """Whether the reply is to be JSON, of a schema or not."""
    system_opening: str | None = None
    """Digest of the first five words of the system prompt (`opening`). None: it has none, or fewer words."""
    last_opening: str | None = None
    """The same of the last text of the last message."""


@dataclass(frozen=True, slots=True)
class Continued:
    """The recorded turn that a prompt goes on from."""

    call_id: str
    choice: int
    length: int
    """How many tokens of the prompt are recorded ones: the turn's own prompt and what was sampled after it."""


@dataclass(frozen=True, slots=True)
class Prompting:
    """How the prompt of a call that was to be exact came about."""

    outcome: PromptOutcome
    continued: Continued | None = None
    """None: nothing was found to go on from."""
    reason: str | None = None
    """Why the engine rendered it (a word, to be counted), or what is wrong. None: neither."""
    detail: str | None = None
    """More about this very call, for a person to read. None: the reason says all."""

    def __post_init__(self) -> None:
        if self.outcome is PromptOutcome.EXACT and self.continued is None:
            raise InvalidValue("an exact prompt goes on from a recorded turn, and none is named")
        if (self.outcome in (PromptOutcome.FALLBACK, PromptOutcome.FAULT)) != (self.reason is not None):
            raise InvalidValue(
                f"a prompt that is {self.outcome} has {'no reason' if self.reason is None else 'a reason'}"
            )


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


class ComponentKind(StrEnum):
    """What a component of a reward is there for, in Nova Forge's words."""

    REWARD = "Reward"
    """Part of the total."""
    METRIC = "Metric"
    """Only watched: in no total and in no advantage."""


@dataclass(frozen=True, slots=True)
class RewardComponent:
    """One named part of a reward."""

    name: str
    value: float
    kind: ComponentKind = ComponentKind.REWARD


@dataclass(frozen=True, slots=True)
class TurnReward:
    """What one turn of a session was worth. Either the call is named, or the turn is numbered."""

    value: float
    call_id: str | None = None
    turn: int | None = None
    """The place among the trained calls of the session, by arrival, from 0."""

    def __post_init__(self) -> None:
        if (self.call_id is None) == (self.turn is None):
            raise InvalidValue("a turn reward names its call_id or its turn, and not both")
        if self.turn is not None and self.turn < 0:
            raise InvalidValue(f"turns are counted from 0; there is no turn {self.turn}")

    @property
    def where(self) -> str:
        """Which turn it speaks of, for people."""
        return f"turn {self.turn}" if self.call_id is None else f"call {self.call_id}"


@dataclass(frozen=True, slots=True)
class Reward:
    """A reward as somebody set it. The latest one of a session counts; earlier ones stay as history."""

    value: float
    components: tuple[RewardComponent, ...] = ()
    turns: tuple[TurnReward, ...] = ()
    spec: str | None = None
    """Digest of the reward specification that it was computed by. None: it was given as it is."""

    def __post_init__(self) -> None:
        parts = ((part.name, part.value) for part in self.components)
        for name, value in (("reward", self.value), *parts, *((turn.where, turn.value) for turn in self.turns)):
            if not np.isfinite(value):
                raise InvalidValue(f"{name} is {value}; a reward is a finite number")
        names = [part.name for part in self.components]
        if len(set(names)) != len(names):
            raise InvalidValue(f"a reward has two components of one name: {', '.join(names)}")
        places = [turn.where for turn in self.turns]
        if len(set(places)) != len(places):
            raise InvalidValue(f"a reward speaks twice of one turn: {', '.join(places)}")


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
