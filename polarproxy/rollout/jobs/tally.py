"""What a job has done so far, and how fast."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from polarproxy.rollout.service.verdict import Detail
from polarproxy.store.task_rows import RolloutState

if TYPE_CHECKING:
    from collections.abc import Iterable

    from polarproxy.rollout.jobs.job import Prices
    from polarproxy.store.task_rows import Outcome, Rollout


@dataclass(slots=True)
class Tally:
    """Counts of ended rollouts."""

    attempted: int = 0
    skipped: int = 0
    usable: int = 0
    turns: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    rewards: list[float] = field(default_factory=list)
    statuses: Counter[str] = field(default_factory=Counter)
    left_out: Counter[str] = field(default_factory=Counter)
    """Why rollouts are not usable."""
    examples: dict[str, str] = field(default_factory=dict)
    """By these reasons, what was said of one of them."""

    def add(self, outcome: Outcome) -> None:
        """One more has ended."""
        detail = msgspec.json.decode(outcome.detail.encode("utf-8", "replace"), type=Detail)
        self.attempted += 1
        self.usable += outcome.usable
        self.turns += detail.turns
        self.prompt_tokens += detail.prompt_tokens
        self.completion_tokens += detail.completion_tokens
        self.statuses[outcome.status.value] += 1
        if outcome.reward is not None:
            self.rewards.append(outcome.reward)
        if not outcome.usable:
            why = detail.left_out or outcome.status.value
            self.left_out[why] += 1
            if detail.error is not None:
                self.examples.setdefault(why, detail.error)

    @property
    def accepted_rate(self) -> float | None:
        """Usable of those that ended. None: none has."""
        return self.usable / self.attempted if self.attempted else None

    @property
    def reward_mean(self) -> float | None:
        """Of those that have one. None: none has."""
        return sum(self.rewards) / len(self.rewards) if self.rewards else None

    def cost(self, prices: Prices) -> float:
        """In the currency of the prices."""
        return (self.prompt_tokens * prices.prompt + self.completion_tokens * prices.completion) / 1e6

    def summary(self, prices: Prices) -> dict[str, Any]:
        """For `summary.json`."""
        ended = max(self.attempted, 1)
        return {
            "attempted": self.attempted,
            "accepted": self.usable,
            "accepted_rate": self.accepted_rate,
            "skipped": self.skipped,
            "reward_mean": self.reward_mean,
            "turns_mean": self.turns / ended,
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "completion_tokens_mean": self.completion_tokens / ended,
            "cost": self.cost(prices),
            "statuses": dict(sorted(self.statuses.items())),
            "not_accepted": dict(sorted(self.left_out.items())),
            "errors": dict(sorted(self.examples.items())),
        }


def tally(rollouts: Iterable[Rollout]) -> Tally:
    """Of those that ended."""
    counted = Tally()
    for one in rollouts:
        if one.outcome is not None:
            counted.add(one.outcome)
        elif one.state is RolloutState.SKIPPED:
            counted.skipped += 1
    return counted
