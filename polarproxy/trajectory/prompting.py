"""What became of the exact prompts of a session, counted."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from polarproxy.model import PromptOutcome

if TYPE_CHECKING:
    from collections.abc import Iterable

    from polarproxy.model import CapturedCall


@dataclass(slots=True)
class PromptCount:
    """Calls of exact mode, by what became of their prompts."""

    first: int = 0
    """Calls with nothing to go on from."""
    exact: int = 0
    """Turns that were gone on from exactly."""
    faults: int = 0
    """Calls of which the engine says that it used another prompt than the one that it was given."""
    fallbacks: Counter[str] = field(default_factory=Counter)
    """Calls of which the engine rendered the prompt, by reason."""
    saved_tokens: int = 0
    """Sampled tokens of the turns that were gone on from: in template mode the engine would have made tokens of their text
    anew, each time that they came back. Counted once for each turn that was gone on from."""

    @property
    def calls(self) -> int:
        """How many calls were to have an exact prompt."""
        return self.first + self.exact + self.faults + self.fallbacks.total()

    def told(self) -> dict[str, object]:
        """As JSON values."""
        return {
            "first": self.first,
            "exact": self.exact,
            "faults": self.faults,
            "fallbacks": dict(sorted(self.fallbacks.items())),
            "saved_tokens": self.saved_tokens,
        }

    def add(self, other: PromptCount) -> None:
        """Adds the counts of another session."""
        self.first += other.first
        self.exact += other.exact
        self.faults += other.faults
        self.fallbacks.update(other.fallbacks)
        self.saved_tokens += other.saved_tokens


def count_prompts(calls: Iterable[CapturedCall]) -> PromptCount:
    """Counts the calls of one session."""
    count, sampled, continued = PromptCount(), dict[tuple[str, int], int](), set[tuple[str, int]]()
    for call in (captured.call for captured in calls):
        sampled |= {(call.call_id, one.index): len(one.token_ids) for one in call.completions}
        prompting = call.prompting
        if prompting is None:
            continue
        match prompting.outcome:
            case PromptOutcome.FIRST:
                count.first += 1
            case PromptOutcome.FAULT:
                count.faults += 1
            case PromptOutcome.FALLBACK:
                count.fallbacks[prompting.reason or ""] += 1
            case PromptOutcome.EXACT:
                count.exact += 1
                if prompting.continued is not None:
                    continued.add((prompting.continued.call_id, prompting.continued.choice))
    count.saved_tokens = sum(sampled.get(turn, 0) for turn in continued)
    return count
