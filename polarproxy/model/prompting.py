"""Exact prompts: what was asked for, what became of it, and what a later request is recognised by."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from polarproxy.errors import InvalidValue


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
        " truncation, or transfer parameters of its own) or has members by which turns are not recognised, and nothing goes"
        " on from its reply; or it limits the next thoughts by `thinking_token_budget`, which would count those of a turn"
        " that was cut",
    )
    UNREADABLE = "unreadable", "the messages of the request cannot be read"
    MEDIA = "media", "the conversation holds images, sound or documents, with which the engine ignores prompt ids"
    ENGINE_UNABLE = (
        "engine_unable",
        "the engine does not take prompt ids, cannot render a conversation, or its reasoning parser is misled by earlier"
        " thoughts",
    )
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


@dataclass(frozen=True, slots=True)
class TurnMark:
    """What a reply is recognised by when a later request repeats it. Digests have 16 bytes, but for those of reasoning."""

    key: bytes
    """Of all that was said up to and including it, by meaning."""
    spelling: bytes
    """Of its text and arguments exactly as written."""
    reasoning: bytes | None
    """Of the reasoning of each turn of the assistant up to it, as it was sent, 4 bytes each; the last one is its own, as the
    client was shown it. Zeros: none. None: there is none at all."""
    ids: tuple[str, ...]
    """The ids of its tool calls, after a digest (hex) of those of all calls before, if there are any."""
    template: str
    """Fingerprint of the chat template, as its renderings show it."""


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
