"""Sessions and rewards in words, one value a cell; `--json` gives them as they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING

from polarproxy.model import ComponentKind, Reward

if TYPE_CHECKING:
    from collections.abc import Iterator

    from polarproxy.model import Session

_MARKS = {ComponentKind.REWARD: "", ComponentKind.PENALTY: " (penalty)", ComponentKind.METRIC: " (metric)"}


def components_of(reward: Reward) -> str | None:
    """Name and value of each; None when it has none."""
    return ", ".join(f"{part.name} {part.value:g}{_MARKS[part.kind]}" for part in reward.components) or None


def turns_of(reward: Reward) -> str | None:
    """Place and value of each turn that was rewarded; None when none was."""
    return ", ".join(f"{turn.where} {turn.value:g}" for turn in reward.turns) or None


def session_facts(session: Session) -> Iterator[tuple[str, object]]:
    """What is known of it: names with values; what nobody set is left out."""
    for field in fields(session):
        value = getattr(session, field.name)
        if isinstance(value, Reward):
            parts = {"components": components_of(value), "turns": turns_of(value), "spec": value.spec}
            yield "reward", value.value
            yield from ((f"reward {name}", text) for name, text in parts.items() if text is not None)
        elif field.name == "metadata":
            yield from ((f"metadata {name}", text) for name, text in value)
        elif value is not None:
            yield field.name, value


def counts_in_words(facts: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    """The same facts; a mapping of counts becomes text, None when nothing was counted."""
    for name, value in facts.items():
        if isinstance(value, Mapping):
            yield name, ", ".join(f"{what} {count}" for what, count in value.items()) or None
        else:
            yield name, value
