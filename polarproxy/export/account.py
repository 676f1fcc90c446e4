"""The account of an export: what it holds, what it does not, and why."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING

from polarproxy.credit.collapse import Collapse, Observed, observe
from polarproxy.trajectory.prompting import PromptCount

if TYPE_CHECKING:
    from polarproxy.credit.diagnostics import RewardSummary
    from polarproxy.credit.versions import RewardVersion
    from polarproxy.export.options import Options


@dataclass(slots=True)
class Tally:
    """What can be counted of some sessions, and added up."""

    sessions: int = 0
    calls: int = 0
    rows: int = 0
    tokens: int = 0
    captured_tokens: int = 0
    trained_tokens: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    """Calls by what they were for."""
    left_out_calls: Counter[str] = field(default_factory=Counter)
    """Completions or whole calls, by reason."""
    left_out_sessions: Counter[str] = field(default_factory=Counter)
    left_out_turns: Counter[str] = field(default_factory=Counter)
    """Turns that could be trained and are not, by reason."""
    left_out_tokens: Counter[str] = field(default_factory=Counter)
    """Sampled tokens that are not trained, by the reason of their call, turn, session or cut; with `trained_tokens` they are
    `captured_tokens`."""
    lags: Counter[int] = field(default_factory=Counter)
    """Rows, by how many versions before their oldest trained turn was sampled."""
    drifts: Counter[str] = field(default_factory=Counter)
    """Calls that repeat an earlier one in other tokens, by class."""
    unfaithful_rows: int = 0
    """Rows with trained tokens that were sampled in another context; only `stitch` makes such."""
    off_context_tokens: int = 0
    """How many such tokens."""
    refused_rows: Counter[str] = field(default_factory=Counter)
    """Rows of which a strict export refused turns, by what was wrong; a row may have several reasons."""
    refused: int = 0
    """How many rows would hold turns that were refused."""
    cut_rows: int = 0
    """Rows that were longer than `--max-tokens`."""
    cut_tokens: int = 0
    """How many tokens were cut off them."""
    cut_trained_tokens: int = 0
    """How many of those were to be trained."""
    untrained_rows: int = 0
    """Rows that are gone: nothing before the cut is trained."""
    models: Counter[str] = field(default_factory=Counter)
    """Rows by the model that sampled what they train; `several` where more than one did."""
    findings: Counter[str] = field(default_factory=Counter)
    """What was found in the calls of all sessions, by code."""
    prompts: dict[str, PromptCount] = field(default_factory=dict)
    """What became of exact prompts, by session; sessions without any are not in it."""
    warnings: Counter[str] = field(default_factory=Counter)
    """Rows with something a trainer should know, by what."""
    texts: Counter[str] = field(default_factory=Counter)
    """What a format of conversations holds, and what it does not."""

    def tally(self) -> Tally:
        """The counts alone."""
        return Tally(**{one.name: getattr(self, one.name) for one in fields(Tally)})

    def add(self, other: Tally) -> None:
        """Adds the counts of other sessions."""
        for one in fields(Tally):
            own, theirs = getattr(self, one.name), getattr(other, one.name)
            if isinstance(own, int):
                setattr(self, one.name, own + theirs)
            else:
                own.update(theirs)


@dataclass(slots=True, kw_only=True)
class Account(Tally):
    """What an export, or a file of it, holds, and what it does not; complete when all sessions have been taken."""

    options: Options
    rewards: RewardSummary
    reward_version: RewardVersion
    policy_version: int = 0
    """The weights that are to be trained."""
    observed: list[Observed] = field(default_factory=list)
    """The sessions that are not too old."""
    idle_groups: tuple[str, ...] = ()
    """Groups that teach nothing: every advantage is 0."""

    @property
    def collapse(self) -> Collapse:
        """What the rewards teach, and signs that they do not."""
        return observe(self.observed, idle=self.idle_groups)

    @property
    def coverage(self) -> float | None:
        """Trained / captured sampled tokens. None: nothing was sampled."""
        return self.trained_tokens / self.captured_tokens if self.captured_tokens else None

    @property
    def all_prompts(self) -> PromptCount:
        """What became of the exact prompts of all sessions."""
        total = PromptCount()
        for count in self.prompts.values():
            total.add(count)
        return total
