"""`--where`: which sessions and turns an export is of, as terms such as `harness=codex reward>0.5 kind=main`."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from difflib import get_close_matches
from fnmatch import fnmatchcase
from math import isfinite
from typing import TYPE_CHECKING, TypeAlias

from polarproxy.errors import BadExport
from polarproxy.model import CallKind, SessionStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from polarproxy.model import Session
    from polarproxy.trajectory.branches import Turn

Value: TypeAlias = "str | float | int | date | datetime"

_TERM = re.compile(
    r"""\s*(?:and\b\s*)?(?P<key>[A-Za-z_][\w.-]*)\s*(?P<op>==|!=|>=|<=|=|>|<)\s*
    (?P<values>(?:"[^"]*"|[^\s,"]+)(?:,(?:"[^"]*"|[^\s,"]+))*)(?=\s|$)""",
    re.VERBOSE,
)
_VALUE = re.compile(r'"([^"]*)"|([^\s,"]+)')
_NONE = "none"
_ORDERED = (">", ">=", "<", "<=")
_OF_SESSIONS: dict[str, Callable[[Session], str | None]] = {
    "session": lambda one: one.session_id,
    "task": lambda one: one.task_id,
    "group": lambda one: one.group_id,
    "harness": lambda one: one.harness,
    "status": lambda one: one.status.value,
}
_OF_TURNS = ("kind", "model", "version")
REWARD, TIME = "reward", "time"
KEYS = (*_OF_SESSIONS, TIME, REWARD, *_OF_TURNS)
_NAMES = {"kind": [kind.value for kind in CallKind], "status": [status.value for status in SessionStatus]}


@dataclass(frozen=True, slots=True)
class Term:
    """One condition. Several values of `=` are alternatives, of `!=` all excluded."""

    key: str
    op: str
    values: tuple[Value | None, ...]
    """None: the word `none`, what has no value. Text may have `*` and `?`."""

    def holds(self, found: Value | None) -> bool:
        """Whether it is true of a value. Only `=` and `!=` are true of what has none."""
        if self.op == "=":
            return any(_equal(found, value) for value in self.values)
        if self.op == "!=":
            return not any(_equal(found, value) for value in self.values)
        (bound,) = self.values
        if found is None or bound is None:
            return False
        low, high = _measured(found, bound)
        return {">": low > high, ">=": low >= high, "<": low < high, "<=": low <= high}[self.op]


@dataclass(frozen=True, slots=True)
class Where:
    """All terms must hold: those of sessions before credit, those of rewards after it, those of turns for what is trained."""

    terms: tuple[Term, ...] = ()
    text: str = field(default="", compare=False)
    """As it was written."""

    def session(self, session: Session) -> bool:
        """Whether a session is in the export and in its baselines."""
        return all(_holds_of(term, session) for term in self.terms if term.key in (*_OF_SESSIONS, TIME))

    def reward(self, session: Session) -> bool:
        """Whether a session's reward is wanted; one that is not stays in the baselines."""
        return all(_reward_holds(term, session) for term in self.terms if _is_reward(term.key))

    @property
    def of_turns(self) -> bool:
        """Whether some turns may be left out."""
        return any(term.key in _OF_TURNS for term in self.terms)

    def turn(self, turn: Turn) -> bool:
        """Whether a turn is trained; one that is not is context."""
        call = turn.node.captured.call
        found: dict[str, Value | None] = {
            "kind": turn.node.captured.kind.value,
            "model": call.served_model,
            "version": call.policy_version_min,
        }
        return all(term.holds(found[term.key]) for term in self.terms if term.key in _OF_TURNS)

    def nothing(self, sessions: Iterable[Session]) -> str:
        """What to say when no session is left of these: which term none fulfils, and what there is instead."""
        known = list(sessions)
        for term in self.terms:
            read = _OF_SESSIONS.get(term.key)
            if read is None or any(_holds_of(term, one) for one in known):
                continue
            there = sorted({value for one in known if (value := read(one)) is not None})
            asked = [str(value) for value in term.values if value is not None]
            if term.op == "!=":
                return f"every session has the {term.key} {' or '.join(asked) or _NONE}"
            near = get_close_matches(asked[0], there, 3, 0.5) if asked else []
            return f"no session has the {term.key} {', '.join(asked) or _NONE}" + (
                f"; did you mean {' or '.join(near)}?"
                if near
                else f"; there are: {', '.join(there[:8]) or 'none at all'}"
            )
        return f"no session fulfils all of: {self.text}"


def read_where(texts: Sequence[str]) -> Where:
    """The terms of these texts, all of which must hold; raises `BadExport`, which names the nearest key or value."""
    text = " ".join(texts).strip()
    try:
        text.encode()
    except UnicodeEncodeError as error:
        # The report repeats it.
        raise BadExport(f"--where must be UTF-8, and {text!a} is not") from error
    terms, at = [], 0
    while at < len(text):
        found = _TERM.match(text, at)
        if found is None:
            raise BadExport(
                f"--where cannot be read from {text[at:].strip()!r} on: a term is KEY=VALUE, with = != > >= < or <=; values"
                ' with spaces stand between "…", alternatives have commas between them; all terms must hold.'
                " For example: harness=codex reward>0.5"
            )
        terms.append(_term(found["key"].lower(), found["op"].replace("==", "="), found["values"]))
        at = found.end()
        at += len(text[at:]) - len(text[at:].lstrip())
    return Where(tuple(terms), text)


def _term(key: str, op: str, written: str) -> Term:
    if key not in KEYS and not _is_reward(key):
        near = get_close_matches(key, KEYS, 1, 0.5)
        hint = f"did you mean {near[0]}? " if near else ""
        raise BadExport(f"--where knows no {key!r}; {hint}there are {', '.join(KEYS)}, and reward.COMPONENT")
    words = [None if bare == _NONE else quoted or bare for quoted, bare in _VALUE.findall(written)]
    if op in _ORDERED and (len(words) > 1 or None in words or not _is_ordered(key)):
        raise BadExport(f"--where {key}{op}{written}: {op} compares numbers and times, one at a time")
    return Term(key, op, tuple(None if word is None else _value(key, word) for word in words))


def _value(key: str, word: str) -> Value:
    try:
        if _is_reward(key):
            number = float(word)
            if not isfinite(number):
                raise ValueError(word)
            return number
        if key == "version":
            return int(word)
        if key == TIME:
            return _time(word)
    except ValueError as error:
        wanted = {TIME: "a date (2026-11-01) or a time (2026-11-01T08:00Z)", "version": "a whole number"}
        raise BadExport(f"--where {key}: {word!r} is not {wanted.get(key, 'a finite number')}") from error
    known = _NAMES.get(key)
    if known is not None and not any(_fits(name, word) for name in known):
        near = get_close_matches(word, known, 1, 0.5)
        hint = f"did you mean {near[0]}? " if near else ""
        raise BadExport(f"--where {key}: there is no {key} {word!r}; {hint}there are {', '.join(known)}")
    return word


def _time(word: str) -> Value:
    """A date, which stands for the whole day (UTC), or a moment; one that does not say its zone is UTC."""
    if "T" not in word.upper() and " " not in word:
        return date.fromisoformat(word)
    moment = datetime.fromisoformat(word)
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def _fits(found: str, pattern: str) -> bool:
    """Brackets are themselves: names of tasks have them (`test_add[1-2]`), and only `*` and `?` are promised."""
    return fnmatchcase(found, pattern.replace("[", "[[]"))


def _is_reward(key: str) -> bool:
    return key == REWARD or key.startswith(f"{REWARD}.")


def _is_ordered(key: str) -> bool:
    return _is_reward(key) or key in (TIME, "version")


def _measured(found: Value, bound: Value) -> tuple[float, float]:
    """A number or a moment and what it is compared with; a moment that is compared with a day counts as its day."""
    if isinstance(found, datetime) and isinstance(bound, date):
        if isinstance(bound, datetime):
            return found.timestamp(), bound.timestamp()
        return found.astimezone(UTC).date().toordinal(), bound.toordinal()
    return float(str(found)), float(str(bound))


def _equal(found: Value | None, value: Value | None) -> bool:
    if found is None or value is None:
        return found is value
    if isinstance(found, str) and isinstance(value, str):
        return _fits(found, value)
    low, high = _measured(found, value)
    return low == high


def _holds_of(term: Term, session: Session) -> bool:
    return term.holds(session.created_at if term.key == TIME else _OF_SESSIONS[term.key](session))


def _reward_holds(term: Term, session: Session) -> bool:
    reward, component = session.reward, term.key.partition(".")[2]
    if reward is None or not component:
        return term.holds(None if reward is None else reward.value)
    return term.holds(next((part.value for part in reward.components if part.name.lower() == component), None))
