"""Asking the judges of a reward specification about a session: built-in ones, Python functions and commands."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from polarproxy.credit.judges import JUDGES
from polarproxy.credit.spec import Judgement, compose, judge_options
from polarproxy.errors import BadReward, JudgeFailed
from polarproxy.model import ComponentKind
from polarproxy.rollout.judge_command import judge_by_command

if TYPE_CHECKING:
    from polarproxy.credit.spec import Component, Spec
    from polarproxy.credit.transcript import Transcript
    from polarproxy.model import Reward, RewardComponent, Session

_Ask = Callable[["Session", "Transcript"], Judgement]


class Judges:
    """The judges of a specification, ready to be asked; safe to ask from several threads if its Python functions are.

    Raises `BadReward` when a Python function cannot be found.
    """

    def __init__(self, spec: Spec) -> None:
        self._spec = spec
        self._asks = {one.name: _ready(one) for one in spec.components}

    def judge(self, session: Session, said: Transcript) -> Reward | None:
        """The reward of a session. None: there was nothing to judge. Raises `JudgeFailed` when a judge did not do its work."""
        judged = {name: ask(session, said) for name, ask in self._asks.items()}
        turns = () if session.reward is None else session.reward.turns
        try:
            found = compose(self._spec, judged, turns)
        except BadReward as error:
            raise JudgeFailed(str(error)) from error
        return None if found is None else replace(found, components=(*found.components, *self._carried(session)))

    def _carried(self, session: Session) -> Iterator[RewardComponent]:
        """Components of the reward before that the specification does not speak of: kept, and in no total any more."""
        for part in () if session.reward is None else session.reward.components:
            if part.name not in self._asks and part.name.partition("/")[0] not in self._asks:
                yield replace(part, kind=ComponentKind.METRIC)


def _ready(one: Component) -> _Ask:
    if one.judge is not None:
        return _built_in(one)
    if one.python is not None:
        return _by_function(one, _named(one.python))
    if one.command is not None:
        return lambda session, said: judge_by_command(one, session, said)
    return lambda session, _said: Judgement(_stored(one.name, session))


def _stored(name: str, session: Session) -> float | None:
    parts = () if session.reward is None else session.reward.components
    return next((part.value for part in parts if part.name == name), None)


def _built_in(one: Component) -> _Ask:
    options, judge = judge_options(one), {name: judge for name, _, judge in JUDGES}[one.judge or ""]

    def ask(session: Session, said: Transcript) -> Judgement:
        if not said.turns:
            return Judgement(None)
        try:
            return Judgement(judge(session, said, options))
        except BadReward as error:
            raise JudgeFailed(f"{one.name}: {error}") from error

    return ask


def _named(name: str) -> Callable[..., Any]:
    try:
        return find_function(name)
    except BadReward as error:
        raise BadReward(f"python = {error}") from error


def find_function(name: str) -> Callable[..., Any]:
    """The function of `module:function`, which may lie in the working directory; raises `BadReward`."""
    module, _, function = name.partition(":")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError, SyntaxError) as error:
        raise BadReward(f"{name!r} cannot be found: {error}") from error
    # Anything may come out of somebody else's module while it is imported, the wish to end the program among it.
    except (Exception, SystemExit) as error:
        raise BadReward(f"{name!r}: importing {module} raised {type(error).__name__}: {error}") from error
    if not callable(found):
        raise BadReward(f"{name!r} is no function")
    return found  # type: ignore[no-any-return]


def _by_function(one: Component, function: Callable[..., Any]) -> _Ask:
    def ask(session: Session, said: Transcript) -> Judgement:
        try:
            return as_judgement(function(session, said, **one.options))
        # Anything may come out of somebody else's function, and one session must not end the others.
        except (Exception, SystemExit) as error:
            raise JudgeFailed(f"{one.name}: {one.python} raised {type(error).__name__}: {error}") from error

    return ask


def as_judgement(value: Any) -> Judgement:
    """What a Python function returned: a number, None, or named parts, of which the value is the sum.

    Raises `JudgeFailed` for anything else, `True` among it.
    """
    if value is None:
        return Judgement(None)
    if isinstance(value, Mapping):
        parts = {str(name): _number(own) for name, own in value.items()}
        return Judgement(sum(parts.values()), parts)
    return Judgement(_number(value))


def _number(value: Any) -> float:
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | float | np.number):
        raise JudgeFailed(f"{value!r} is no number")
    return float(value)
