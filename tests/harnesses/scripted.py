"""A model that plays a part: how the scripted engine answers a coding agent, written down as a short table of rules.

    scenario = Scenario(
        Rule("title", without_tools, (says("A title"),)),
        Rule("main", offered("bash"), (uses("bash", command="echo hi"), fails(500), says("Done."))),
    )

The first rule that fits a request and has turns left answers it with its next turn. Rules look only at the chat request
that reaches the engine, so the same table serves an agent of any dialect. A request that no rule answers gets a short
text, and is kept in `unexpected` for the test to complain about.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

from tests.fakes import Delta, Faults, Received, Reply, Tool, Turn, compose
from tests.fakes.toy_tokenizer import prompt_ids

CONTEXT = 262_144
"""The scripted engine's context in toy tokens; agents ask for up to 128,000 tokens of output."""


@dataclass(frozen=True)
class Ask:
    """One chat request as the engine received it."""

    received: Received

    @cached_property
    def body(self) -> Any:
        return self.received.json

    @cached_property
    def tools(self) -> frozenset[str]:
        """Names of the functions that the model may call."""
        return frozenset(tool["function"]["name"] for tool in self.body.get("tools") or ())

    @cached_property
    def said(self) -> tuple[str, ...]:
        """What each message says, in order; tool calls are not part of it."""
        return tuple(_text(message.get("content")) for message in self.body["messages"])

    @property
    def last(self) -> str:
        return self.said[-1]

    @property
    def wants_json(self) -> bool:
        return self.body.get("response_format") is not None or self.body.get("structured_outputs") is not None

    @cached_property
    def prompt_token_ids(self) -> list[int]:
        return prompt_ids(self.body["messages"], self.body.get("tools"))


def _text(content: Any) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    return "".join(part.get("text", "") for part in content)


Test = Callable[[Ask], bool]
Answer = Turn | Callable[[Ask], Turn]


@dataclass(frozen=True)
class Rule:
    """A turn may depend on what was asked; `repeat` lets the last one answer every further request."""

    name: str
    fits: Test
    turns: tuple[Answer, ...]
    repeat: bool = False


@dataclass(frozen=True)
class Played:
    """A request and how it was answered."""

    rule: str
    ask: Ask
    turn: Turn

    @property
    def prompt_token_ids(self) -> list[int]:
        forced = self.turn.replies[0].prompt_token_ids
        return list(forced) if forced else self.ask.prompt_token_ids


class Scenario:
    """Plays its rules; `played` has every request in the order of arrival at the engine."""

    def __init__(self, *rules: Rule) -> None:
        assert len({rule.name for rule in rules}) == len(rules), "two rules have one name"
        self.played: list[Played] = []
        self.unexpected: list[Ask] = []
        self._rules, self._used = rules, dict[str, int]()

    def __call__(self, received: Received) -> Turn:
        ask = Ask(received)
        for rule in self._rules:
            used = self._used.get(rule.name, 0)
            if (rule.repeat or used < len(rule.turns)) and rule.fits(ask):
                self._used[rule.name] = used + 1
                answer = rule.turns[min(used, len(rule.turns) - 1)]
                return self._play(rule.name, ask, answer if isinstance(answer, Turn) else answer(ask))
        self.unexpected.append(ask)
        return self._play("unexpected", ask, says("I do not know what to say."))

    def _play(self, rule: str, ask: Ask, turn: Turn) -> Turn:
        self.played.append(Played(rule, ask, turn))
        return turn

    @property
    def order(self) -> list[str]:
        """The rules in the order in which they answered."""
        return [played.rule for played in self.played]

    def asks(self, rule: str) -> list[Ask]:
        return [played.ask for played in self.played if played.rule == rule]


# What rules look at.


def anything(_: Ask) -> bool:
    return True


def without_tools(ask: Ask) -> bool:
    return not ask.tools


def wants_json(ask: Ask) -> bool:
    return ask.wants_json


def offered(tool: str) -> Test:
    return lambda ask: tool in ask.tools


def asked(text: str) -> Test:
    """The conversation's last message has this text."""
    return lambda ask: text in ask.last


def told(text: str) -> Test:
    """Any message has this text."""
    return lambda ask: any(text in said for said in ask.said)


# How turns are written.


def says(text: str, *, reasoning: str | None = None) -> Turn:
    return Turn((compose(text, reasoning=reasoning),))


def uses(tool: str, *, text: str | None = None, reasoning: str | None = None, **arguments: Any) -> Turn:
    """One tool call; the arguments are sampled with a space after `:` and `,`, as most models write them."""
    return Turn((compose(text, reasoning=reasoning, tools=(Tool(tool, json.dumps(arguments)),)),))


def fails(status: int = 500) -> Turn:
    return Turn((compose("never sent"),), Faults(status=status))


def overflows() -> Turn:
    """The engine's own refusal of a prompt that is longer than its context."""
    return Turn((Reply((), prompt_token_ids=(0,) * (CONTEXT + 1)),))


def cut(turn: Turn, inside: Literal["reasoning", "text", "call"]) -> Turn:
    """The engine's connection closes in the middle of that part of the answer; all before it arrives."""
    steps = turn.replies[0].steps
    shown = [number for number, step in enumerate(steps, 1) if _shows(step.delta, inside)]
    middle = shown[len(shown) // 2]
    # The first event is the role's.
    return replace(turn, faults=Faults(cut_after=middle + 1))


def _shows(delta: Delta, part: str) -> bool:
    return bool({"reasoning": delta.reasoning, "text": delta.content, "call": delta.tools}[part])


def cut_whole(turn: Turn) -> Turn:
    """The engine's connection closes half way through a reply that is not streamed."""
    return replace(turn, faults=Faults(cut_after=1))


def filled(turn: Turn, prompt_tokens: int) -> Turn:
    """The engine saw a prompt of so many tokens, and says so in its usage: what makes an agent compact."""
    forced: Sequence[int] = (0,) * prompt_tokens
    return replace(turn, replies=tuple(replace(reply, prompt_token_ids=tuple(forced)) for reply in turn.replies))
