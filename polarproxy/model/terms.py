"""The terms that sessions and calls are described in."""

from __future__ import annotations

from enum import StrEnum


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


class SessionStatus(StrEnum):
    """How a rollout ended; `open` while calls may still come."""

    OPEN = "open"
    COMPLETED = "completed"
    AGENT_ERROR = "agent_error"
    TIMEOUT = "timeout"
    INFRA_ERROR = "infra_error"
    EVALUATOR_ERROR = "evaluator_error"
    ABORTED = "aborted"
