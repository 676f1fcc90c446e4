"""What is known of a chat template: where turns end, and whether what follows one depends on what came before it.

Found out once for each template and its settings, by renderings of small conversations (`probe`).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from polarproxy.model import FallbackReason, TokenIds


class Standing(IntEnum):
    """How much must be rendered to continue a turn."""

    NONE = 0
    """The template does not show where such a turn ends."""
    FULL = 1
    """The whole conversation: what follows a turn depends on what came before it."""
    SHORT = 2
    """Only what follows the turn, after a stand-in for all that came before."""


@dataclass(frozen=True, slots=True)
class TemplateFacts:
    """What a probe found."""

    fingerprint: str
    """Digest (hex) of how the probe's turns end; another one means another template or tokenizer.

    Nothing of what stands before a turn is in it: many templates write the day there.
    """
    after_text: Standing
    """For turns without tool calls."""
    after_calls: Standing
    """For turns with tool calls."""
    before_system: Standing
    """For conversations with a system message after the turn."""
    call_close: int | None
    """The token that ends a turn with tool calls. None: not found."""
    ids_shown: bool
    """Whether the ids of tool calls are rendered."""
    begins: TokenIds
    """What begins the assistant's next turn after a message of the user: the generation prompt. May be empty."""
    begins_after_result: TokenIds
    """The same after the result of a tool call."""
    header: int | None
    """The last token that the template puts between the generation prompt and a turn's text. None: the text comes at once."""


@dataclass(frozen=True, slots=True)
class Refused:
    """A template that cannot be continued exactly."""

    reason: FallbackReason
    detail: str
    """What was found, for a person to read."""
