"""The nouns: what a rollout, a call and its tokens are, as values that cannot be wrong.

Only what happened is described here. A `Call` is written once; what becomes known later (delivered, a reward, a changed
kind) is a fact of its own. Branches, groups, samples and batches are views, computed elsewhere.
"""

from __future__ import annotations

from polarproxy.model.calls import (
    FORCEABLE,
    Call,
    CapturedCall,
    Completion,
    Label,
    Loss,
    Sampling,
    Session,
    Timing,
    Usage,
)
from polarproxy.model.prompting import Continued, FallbackReason, Prompting, PromptMode, PromptOutcome, TurnMark
from polarproxy.model.rewards import ComponentKind, Reward, RewardComponent, TurnReward
from polarproxy.model.shapes import FAR_ENOUGH, OPENING_WORDS, Shape, opening
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
from polarproxy.model.tokens import TOKEN_BYTES, Logprobs, TokenIds

__all__ = [
    "FAR_ENOUGH",
    "FORCEABLE",
    "OPENING_WORDS",
    "TOKEN_BYTES",
    "Call",
    "CallKind",
    "CallStatus",
    "CapturedCall",
    "Caveat",
    "Completion",
    "ComponentKind",
    "Continued",
    "Dialect",
    "FallbackReason",
    "FinishReason",
    "Label",
    "Logprobs",
    "LogprobsMode",
    "Loss",
    "PromptMode",
    "PromptOutcome",
    "Prompting",
    "Reward",
    "RewardComponent",
    "Sampling",
    "Session",
    "SessionStatus",
    "Shape",
    "Timing",
    "TokenIds",
    "TokenSource",
    "TurnMark",
    "TurnReward",
    "Usage",
    "opening",
]
