"""Rewards of sessions and of turns, with their components."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from polarproxy.errors import InvalidValue


class ComponentKind(StrEnum):
    """What a component of a reward is there for, in Nova Forge's words."""

    REWARD = "Reward"
    """Part of the total."""
    PENALTY = "Penalty"
    """Taken from the total. Not one of Nova Forge's words, which have none for it."""
    METRIC = "Metric"
    """Only watched: in no total and in no advantage."""


@dataclass(frozen=True, slots=True)
class RewardComponent:
    """One named part of a reward."""

    name: str
    value: float
    kind: ComponentKind = ComponentKind.REWARD


_NO_FLOAT32 = 2.0**128 - 2.0**103
"""The least number that is rounded to no finite float32, which is what trainers compute with."""

_LAST_TURN = 2**31 - 1
"""The largest number that every database stores as an integer."""


@dataclass(frozen=True, slots=True)
class TurnReward:
    """What one turn of a session was worth. Either the call is named, or the turn is numbered."""

    value: float
    call_id: str | None = None
    turn: int | None = None
    """The place among the trained calls of the session, by arrival, from 0."""

    def __post_init__(self) -> None:
        if (self.call_id is None) == (self.turn is None):
            raise InvalidValue("a turn reward names its call_id or its turn, and not both")
        if self.turn is not None and self.turn < 0:
            raise InvalidValue(f"turns are counted from 0; there is no turn {self.turn}")
        if self.turn is not None and self.turn > _LAST_TURN:
            raise InvalidValue(f"no session has so many turns; turns are numbered up to {_LAST_TURN}")

    @property
    def where(self) -> str:
        """Which turn it speaks of, for people."""
        return f"turn {self.turn}" if self.call_id is None else f"call {self.call_id}"


@dataclass(frozen=True, slots=True)
class Reward:
    """A reward as somebody set it. The latest one of a session counts; earlier ones stay as history."""

    value: float
    components: tuple[RewardComponent, ...] = ()
    turns: tuple[TurnReward, ...] = ()
    spec: str | None = None
    """Digest of the reward specification that it was computed by. None: it was given as it is."""

    def __post_init__(self) -> None:
        parts = ((part.name, part.value) for part in self.components)
        for name, value in (("reward", self.value), *parts, *((turn.where, turn.value) for turn in self.turns)):
            if isinstance(value, (bool, np.bool_)) or not np.isfinite(value):
                raise InvalidValue(f"{name} is {value}; a reward is a finite number")
        names = [part.name for part in self.components]
        if len(set(names)) != len(names):
            raise InvalidValue(f"a reward has two components of one name: {', '.join(names)}")
        places = [turn.where for turn in self.turns]
        if len(set(places)) != len(places):
            raise InvalidValue(f"a reward speaks twice of one turn: {', '.join(places)}")

    def require_trainable(self) -> Reward:
        """The same; raises `InvalidValue` for a number that is no finite float32, as advantages are: nobody could train by it.

        For a reward that is set now. One that lies in a store since before this was asked can still be read.
        """
        parts = ((part.name, part.value) for part in self.components if part.kind is not ComponentKind.METRIC)
        for name, value in (("reward", self.value), *parts, *((turn.where, turn.value) for turn in self.turns)):
            if abs(value) >= _NO_FLOAT32:
                raise InvalidValue(
                    f"{name} is {value:g}, which is too large: it must lie within ±{np.finfo(np.float32).max:.5g} (float32)"
                )
        return self
