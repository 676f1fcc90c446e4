"""How an agent goes about its work: whether it asks, acts at once, or never does.

A tool call *asks* when the tool's name matches `asks`; it *looks* when the name matches `looks`; any other tool call *acts*: it
changes something. A turn asks when one of its tool calls does, or when it calls no tool and its text holds a question (a word
and a question mark, outside of code). A turn acts when one of its tool calls does.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

from polarproxy.credit.json_schema import check_pattern

if TYPE_CHECKING:
    from polarproxy.credit.transcript import SaidTurn, Transcript
    from polarproxy.model import Session

_CODE = re.compile(r"```.*?(?:```|\Z)|`[^`\n]*`", re.DOTALL)
_QUESTION = re.compile(r"\w[\"')\]]*\s?[?？]")


class Habits(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Regular expressions that are searched in the names of tools, in any case."""

    # A task asks nobody, and a thread is not read.
    asks: str = "(?<![tm])ask|question|clarif|elicit|user_input"
    looks: str = "(?<!th)read|list|search|grep|glob|find|view|fetch|^cat$|^ls$|^get"

    def check(self) -> None:
        """Raises `BadReward` for what is no regular expression."""
        check_pattern(self.asks, "asks")
        check_pattern(self.looks, "looks")

    def is_asking(self, turn: SaidTurn) -> bool:
        """Whether a turn asks."""
        if turn.tools:
            return any(re.search(self.asks, tool.name, re.IGNORECASE) for tool in turn.tools)
        return _QUESTION.search(_CODE.sub("", turn.text)) is not None

    def is_acting(self, turn: SaidTurn) -> bool:
        """Whether a turn acts."""
        quiet = f"(?:{self.asks})|(?:{self.looks})"
        return any(not re.search(quiet, tool.name, re.IGNORECASE) for tool in turn.tools)

    def first_act(self, said: Transcript) -> int | None:
        """The first turn that acts. None: none does."""
        return next((place for place, turn in enumerate(said.turns) if self.is_acting(turn)), None)


def asked_before_acting(_session: Session, said: Transcript, options: Habits) -> float | None:
    """1 if a turn asks before the first one that acts (or any does, when none acts); else 0."""
    return float(any(options.is_asking(turn) for turn in said.turns[: options.first_act(said)]))


def acted_at_once(_session: Session, said: Transcript, options: Habits) -> float | None:
    """1 if the first turn acts; else 0."""
    return float(options.first_act(said) == 0)


def never_committed(_session: Session, said: Transcript, options: Habits) -> float | None:
    """1 if no turn acts; else 0."""
    return float(options.first_act(said) is None)
