"""The built-in judges: pure functions from what was said in a session to a number, or None where there is nothing to judge."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from polarproxy.credit.counting import passed_share
from polarproxy.credit.habits import Habits, acted_at_once, asked_before_acting, never_committed
from polarproxy.credit.json_schema import check_pattern, check_schema, follows
from polarproxy.credit.similarity import ngram_cosine, words
from polarproxy.errors import UNREADABLE, BadReward

if TYPE_CHECKING:
    from collections.abc import Callable

    from polarproxy.credit.transcript import Transcript
    from polarproxy.model import Session

_NUMBER = re.compile(r"-?(?:\d[\d,]*\d|\d)(?:\.\d+)?(?:[eE][+-]?\d+)?")
_FENCE = re.compile(r"```(?:json)?\s*(.*?)```", re.DOTALL)


class Options(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Nothing can be set."""

    def check(self) -> None:
        """Raises `BadReward` when the options contradict each other."""


class Expected(Options, frozen=True):
    """What the right answer is: the same for all, or from the metadata of each session."""

    expected: str | None = None
    expected_from: str | None = None
    """Name of the metadata that holds it."""

    def check(self) -> None:
        """Raises `BadReward` unless exactly one is given."""
        if (self.expected is None) == (self.expected_from is None):
            raise BadReward("give either expected or expected_from")

    def of(self, session: Session) -> str | None:
        """The right answer of a session. None: its metadata has none."""
        if self.expected is not None:
            return self.expected
        return dict(session.metadata).get(self.expected_from or "")


class Exact(Expected, frozen=True):
    """How strictly texts are compared."""

    ignore_case: bool = False
    last_line: bool = False
    """Compare the last line only, not the whole answer."""


class Numeric(Expected, frozen=True):
    """How far off a number may be."""

    tolerance: float = 0.0


class Schema(Options, frozen=True):
    """A JSON schema."""

    schema: Any = True

    def check(self) -> None:
        """Raises `BadReward` for what is no schema that is known here."""
        check_schema(self.schema)


class Pattern(Options, frozen=True):
    """A regular expression."""

    pattern: str = ""
    whole: bool = False
    """Whether all of the answer must match."""

    def check(self) -> None:
        """Raises `BadReward` for what is no regular expression."""
        check_pattern(self.pattern, "pattern")


class Length(Options, frozen=True):
    """Tokens that cost nothing, and tokens from which the penalty is whole."""

    free: int = 0
    most: int = 4096

    def check(self) -> None:
        """Raises `BadReward` unless free < most."""
        if not 0 <= self.free < self.most:
            raise BadReward(f"free ({self.free}) must lie below most ({self.most})")


class Repetition(Options, frozen=True):
    """How long a run of words is that counts when it comes again."""

    ngram: int = 4

    def check(self) -> None:
        """Raises `BadReward` for runs of no words."""
        if self.ngram < 1:
            raise BadReward("ngram must be at least 1")


class Loop(Options, frozen=True):
    """From which cosine on two turns are near-identical."""

    alike: float = 0.95


class Runners(Options, frozen=True):
    """Which tools run tests."""

    tool: str = ""
    """Pattern of their names. Empty: any."""

    def check(self) -> None:
        """Raises `BadReward` for what is no regular expression."""
        check_pattern(self.tool, "tool")


def exact_match(session: Session, said: Transcript, options: Exact) -> float | None:
    """1 if the final text is the expected one, spaces at the ends aside; else 0."""
    expected = options.of(session)
    if expected is None:
        return None
    text = said.final_text.strip()
    if options.last_line:
        text = text.splitlines()[-1].strip() if text else ""
    if options.ignore_case:
        text, expected = text.casefold(), expected.casefold()
    return float(text == expected.strip())


def numeric_match(session: Session, said: Transcript, options: Numeric) -> float | None:
    """1 if the last number of the final text is the expected one, within the tolerance; else 0."""
    expected = options.of(session)
    if expected is None:
        return None
    numbers, wanted = _NUMBER.findall(said.final_text), _NUMBER.findall(expected)
    if not wanted:
        raise BadReward(f"the expected answer {expected!r} is no number")
    if not numbers:
        return 0.0
    off = abs(Decimal(numbers[-1].replace(",", "")) - Decimal(wanted[-1].replace(",", "")))
    return float(off <= Decimal(str(options.tolerance)))


def json_schema(_session: Session, said: Transcript, options: Schema) -> float | None:
    """1 if the final text is JSON (or its last fenced block is) that follows the schema; else 0."""
    fenced = _FENCE.findall(said.final_text)
    text = fenced[-1] if fenced else said.final_text
    try:
        value = msgspec.json.decode(text.encode())
        return float(follows(value, options.schema))
    except UNREADABLE:
        return 0.0


def regex(_session: Session, said: Transcript, options: Pattern) -> float | None:
    """1 if the pattern is found in the final text; else 0."""
    text = said.final_text.strip()
    found = re.fullmatch(options.pattern, text) if options.whole else re.search(options.pattern, text)
    return float(found is not None)


def tests(_session: Session, said: Transcript, options: Runners) -> float | None:
    """Passed / all tests of the last tool result that tells of tests. None: none does."""
    for turn in reversed(said.turns):
        for tool in reversed(turn.tools):
            if tool.result is not None and re.search(options.tool, tool.name):
                share = passed_share(tool.result)
                if share is not None:
                    return share
    return None


def length(_session: Session, said: Transcript, options: Length) -> float | None:
    """0 up to `free` sampled tokens, 1 from `most` on, linear between."""
    return min(1.0, max(0.0, (said.tokens - options.free) / (options.most - options.free)))


def repetition(_session: Session, said: Transcript, options: Repetition) -> float | None:
    """The share of runs of `ngram` words that were said before in the session; 0 when nothing is said twice."""
    tokens = words("\n".join(turn.whole for turn in said.turns))
    runs = [tuple(tokens[start : start + options.ngram]) for start in range(len(tokens) - options.ngram + 1)]
    return 1.0 - len(set(runs)) / len(runs) if runs else 0.0


def loop(_session: Session, said: Transcript, options: Loop) -> float | None:
    """The share of turns that are near-identical to the turn before; 0 for a single turn."""
    pairs = list(zip(said.turns, said.turns[1:], strict=False))
    alike = sum(ngram_cosine(one.whole, next_.whole) >= options.alike for one, next_ in pairs)
    return alike / len(pairs) if pairs else 0.0


Judge: TypeAlias = "Callable[[Session, Transcript, Any], float | None]"

JUDGES: tuple[tuple[str, type[Options] | type[Habits], Judge], ...] = (
    ("exact_match", Exact, exact_match),
    ("numeric_match", Numeric, numeric_match),
    ("json_schema", Schema, json_schema),
    ("regex", Pattern, regex),
    ("tests", Runners, tests),
    ("length", Length, length),
    ("repetition", Repetition, repetition),
    ("loop", Loop, loop),
    ("asked_before_acting", Habits, asked_before_acting),
    ("acted_at_once", Habits, acted_at_once),
    ("never_committed", Habits, never_committed),
)
"""Name, options and function of each. Where a session has no turns, none is asked."""
