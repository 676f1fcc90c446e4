"""What the fake engine samples, and when: frozen values that a test writes down.

A `Script` is a list of turns, one per request in order of arrival. A `Turn` holds one reply per choice and the faults to
apply. A `Reply` is a list of steps, and a `Step` is what one engine iteration yields: its tokens, and what the
engine's parsers make of them. Both are given, so an empty delta that still carries ids (think markers, tool markup,
half a character) is a step like any other.
"""

from dataclasses import dataclass, field, replace
from typing import Self

from tests.fakes.faults import Faults


@dataclass(frozen=True)
class Token:
    """One sampled token.

    `text` is empty for part of a character. `logprob` None means that the engine has none for it. `others` are the
    runners-up that `top_logprobs` shows after it.
    """

    id: int
    text: str
    logprob: float | None = -0.5
    reasoning: bool = False
    others: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True)
class PromptToken:
    """A token of the prompt, for text completions that show its values. `others` are (id, text, logprob, rank) of the
    likelier ones; `logprob` is None for the first token, which follows nothing."""

    id: int
    text: str
    logprob: float | None = None
    rank: int = 1
    others: tuple[tuple[int, str, float, int], ...] = ()


@dataclass(frozen=True)
class ToolDelta:
    """Part of a tool call; the one with a `name` opens it."""

    index: int
    name: str | None = None
    arguments: str | None = None


@dataclass(frozen=True)
class Delta:
    """What the client is shown of a step; all None or empty is `{}` on the wire."""

    content: str | None = None
    reasoning: str | None = None
    tools: tuple[ToolDelta, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.content or self.reasoning or self.tools)


@dataclass(frozen=True)
class Step:
    tokens: tuple[Token, ...]
    delta: Delta = field(default_factory=Delta)


@dataclass(frozen=True)
class Reply:
    """One choice. `prompt_token_ids` None means those of the toy chat template; `finish_reason` is the engine's own
    (`stop`, `length`, `abort`), which becomes `tool_calls` on the wire where vLLM says so. `prompt` is for text
    completions; empty means that the toy tokenizer makes it."""

    steps: tuple[Step, ...]
    finish_reason: str = "stop"
    stop_reason: str | int | None = None
    prompt_token_ids: tuple[int, ...] | None = None
    prompt: tuple[PromptToken, ...] = ()
    cached_tokens: int = 0
    """How much of the prompt the engine still had."""

    @property
    def tokens(self) -> tuple[Token, ...]:
        return tuple(token for step in self.steps for token in step.tokens)

    @property
    def token_ids(self) -> list[int]:
        return [token.id for token in self.tokens]

    @property
    def logprobs(self) -> list[float | None]:
        return [token.logprob for token in self.tokens]

    def with_logprobs(self, *values: float | None) -> Self:
        """The same reply with other logprobs, from the first token on."""
        left = list(values)
        steps = []
        for step in self.steps:
            tokens = tuple(replace(token, logprob=left.pop(0)) if left else token for token in step.tokens)
            steps.append(replace(step, tokens=tokens))
        return replace(self, steps=tuple(steps))


@dataclass(frozen=True)
class Turn:
    """The answer to one request: choice i gets `replies[i % len(replies)]`."""

    replies: tuple[Reply, ...]
    faults: Faults = field(default_factory=Faults)

    def reply(self, choice: int) -> Reply:
        return self.replies[choice % len(self.replies)]


@dataclass(frozen=True)
class Script:
    """Turns in order of arrival, from the start again when they run out."""

    turns: tuple[Turn, ...]

    def turn(self, ordinal: int) -> Turn:
        return self.turns[ordinal % len(self.turns)]


def always(*replies: Reply, faults: Faults | None = None) -> Script:
    """The same answer to every request."""
    return Script((Turn(replies, faults or Faults()),))


def in_order(*replies: Reply) -> Script:
    """One reply after the other, for a conversation of several calls."""
    return Script(tuple(Turn((reply,)) for reply in replies))
