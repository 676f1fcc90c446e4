"""In what engines differ that matters to what is trained."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from polarproxy.engine.probe import EngineFacts


def differences(known: Sequence[tuple[str, EngineFacts]]) -> list[str]:
    """One sentence for each difference between engines, which are named by their URLs."""
    return [
        *_difference("kind", ((name, facts.name) for name, facts in known)),
        *_difference("mode of logprobs", ((name, str(facts.logprobs_mode)) for name, facts in known)),
        *_difference("chat template", ((name, facts.template_digest or "not shown") for name, facts in known)),
    ]


def _difference(what: str, said: Iterable[tuple[str, str]]) -> list[str]:
    by_value: dict[str, list[str]] = {}
    for name, value in said:
        by_value.setdefault(value, []).append(name)
    if len(by_value) < 2:
        return []
    parts = "; ".join(f"{value} at {', '.join(names)}" for value, names in by_value.items())
    return [f"the engines differ in their {what}: {parts}"]
