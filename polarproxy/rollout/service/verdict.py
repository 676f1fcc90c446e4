"""How a rollout ended: its status by the taxonomy, and whether it is usable."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import msgspec

from polarproxy.model import CallStatus, SessionStatus
from polarproxy.store.task_rows import Outcome

if TYPE_CHECKING:
    from collections.abc import Sequence

    from polarproxy.model import Reward
    from polarproxy.rollout.service.request import Keep
    from polarproxy.store.summaries import CallSummary

Stage = Literal["init", "ready", "run", "post"]

_ENGINE_FAILED = (CallStatus.ENGINE_ERROR, CallStatus.TIMEOUT)


class Detail(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What is kept of a rollout beside its status and reward."""

    error: str | None = None
    """In words, for a person. None: nothing went wrong."""
    exit_code: int | None = None
    turns: int = 0
    """Calls that were recorded."""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    seconds: dict[Stage, float] = {}
    """Spent in each stage."""
    components: dict[str, float] = {}
    left_out: str | None = None
    """Why it is not usable. None: it is."""


@dataclass(slots=True)
class Verdict:
    """What is known of a rollout, until it is over."""

    status: SessionStatus = SessionStatus.INFRA_ERROR
    reward: Reward | None = None
    detail: Detail = field(default_factory=Detail)
    opened: bool = False
    """Whether it has a session."""

    def fail(self, status: SessionStatus, why: str) -> None:
        """It went wrong."""
        self.status, self.detail.error = status, why

    def heard(self, calls: Sequence[CallSummary]) -> None:
        """What was recorded of it. An error of the harness whose last call the engine failed is not the harness's own."""
        detail = self.detail
        detail.turns = len(calls)
        detail.prompt_tokens = sum(call.prompt_tokens or 0 for call in calls)
        detail.completion_tokens = sum(call.completion_tokens for call in calls)
        if self.status is SessionStatus.COMPLETED and not calls:
            self.fail(SessionStatus.AGENT_ERROR, "the harness ended without asking the model anything")
        if self.status is SessionStatus.AGENT_ERROR and calls and calls[-1].status in _ENGINE_FAILED:
            self.fail(SessionStatus.INFRA_ERROR, f"the engine failed its last call; then {detail.error}")

    def outcome(self, keep: Keep, *, judged: bool) -> Outcome:
        """For the store. `judged`: whether a reward was to be had."""
        self.detail.left_out = self._why_not(keep, judged=judged)
        value = None if self.reward is None else self.reward.value
        if self.reward is not None:
            self.detail.components = {part.name: part.value for part in self.reward.components}
        # Half characters, which a harness may print, are kept by no encoding.
        detail = self.detail
        if detail.error is not None:
            detail.error = detail.error.encode("utf-8", "replace").decode()
        return Outcome(self.status, detail.left_out is None, value, msgspec.json.encode(detail).decode())

    def _why_not(self, keep: Keep, *, judged: bool) -> str | None:
        value, detail = None if self.reward is None else self.reward.value, self.detail
        limits = (
            ("min_reward", keep.min_reward, value, -1),
            ("max_reward", keep.max_reward, value, 1),
            ("min_turns", keep.min_turns, detail.turns, -1),
            ("max_turns", keep.max_turns, detail.turns, 1),
            ("max_tokens", keep.max_tokens, detail.completion_tokens, 1),
        )
        if self.status not in keep.statuses:
            return str(self.status)
        if judged and value is None:
            return "no_reward"
        for name, limit, own, sign in limits:
            if limit is not None and (own is None or sign * (own - limit) > 0):
                return name
        return None
