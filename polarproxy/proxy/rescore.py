"""Training rows held against the engine: what it says now of each token that was trained, given the tokens before it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from polarproxy.engine import rescore
from polarproxy.errors import BadReply, EngineTimeout, EngineUnreachable
from polarproxy.model import TokenIds
from polarproxy.trajectory.constraints import constraints

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from polarproxy.batch.sample import Sample
    from polarproxy.engine.probe import EngineFacts
    from polarproxy.model import Call
    from polarproxy.proxy.upstream import Upstream


@dataclass(frozen=True, slots=True)
class Bar:
    """What rows are measured by."""

    tolerance: float
    """The largest difference between two log-probabilities (natural logarithm) that counts as none."""
    version: int
    """The policy version that the engine has now."""


@dataclass(frozen=True, slots=True)
class RowScore:
    """What was found of one row."""

    session_id: str
    branch_index: int
    compared: int
    """Trained tokens that were compared."""
    beyond: int
    """Compared tokens that differ by more than the tolerance."""
    worst: float | None
    """The largest difference. None: nothing was compared."""
    worst_at: int | None
    """Position of that token in the row."""
    not_compared: Mapping[str, int] = field(default_factory=dict)
    """Trained tokens that could not be compared, by why."""
    error: str | None = None
    """Why the engine gave no scores. None: it did."""

    @property
    def sound(self) -> bool:
        """Whether nothing differs."""
        return self.error is None and not self.beyond


async def score_row(
    upstream: Upstream, facts: EngineFacts, sample: Sample, calls: Mapping[str, Call], bar: Bar
) -> RowScore:
    """Asks the engine for the scores of a row. `calls`: those of its session by id."""
    places, reasons = _comparable(sample, calls, facts, bar)
    if not places.any():
        return _found(sample, np.empty(0, np.float32), places, reasons, bar)
    length = int(np.flatnonzero(places)[-1]) + 1
    try:
        scores = await _scores(upstream, sample.model or facts.model or "", _ids(sample.token_ids[:length]))
    except (BadReply, EngineTimeout, EngineUnreachable) as error:
        return RowScore(sample.session_id, sample.branch_index, 0, 0, None, None, reasons, str(error))
    return _found(sample, np.abs(scores - sample.rollout_logprobs[:length]), places[:length], reasons, bar)


async def control_differs(upstream: Upstream, facts: EngineFacts, sample: Sample, bar: Bar) -> bool:
    """Whether the first trained token of a row scores otherwise when the token before it is another one: if not, nothing
    that was found equal means anything. Raises `BadReply`, `EngineTimeout`, `EngineUnreachable`."""
    first = int(np.flatnonzero(sample.loss_mask)[0])
    changed = sample.token_ids[: first + 1].copy()
    changed[first - 1] = next(token for token in (*sample.token_ids, 0, 1) if token != changed[first - 1])
    scores = await _scores(upstream, sample.model or facts.model or "", _ids(changed))
    return bool(abs(float(scores[first]) - float(sample.rollout_logprobs[first])) > bar.tolerance)


async def _scores(upstream: Upstream, model: str, ids: TokenIds) -> NDArray[np.float32]:
    status, reply = await upstream.ask("POST", rescore.ROUTE, rescore.request(model, ids))
    if status != 200:
        raise BadReply(f"{rescore.ROUTE} answers {status}: {reply[:300].decode('utf-8', 'replace')}")
    return rescore.read(reply, ids)


def _ids(tokens: NDArray[np.int32]) -> TokenIds:
    return TokenIds(tokens.astype("<i4").tobytes())


def _comparable(
    sample: Sample, calls: Mapping[str, Call], facts: EngineFacts, bar: Bar
) -> tuple[NDArray[np.bool_], dict[str, int]]:
    """Which positions can be compared, bool `[L]`, and why the other trained ones cannot."""
    places = sample.loss_mask.astype(bool)
    reasons: Counter[str] = Counter()
    for turn, call_id in enumerate(sample.call_ids):
        why = _why_not(calls[call_id], facts, bar)
        own = places & (sample.turn_index == turn)
        if why is not None and own.any():
            reasons[why] += int(own.sum())
            places &= ~own
    if facts.max_model_len is not None and len(places) >= facts.max_model_len:
        beyond = places.copy()
        # One token must be sampled after what is scored.
        beyond[: facts.max_model_len - 1] = False
        if beyond.any():
            reasons["it leaves no room in the engine's context"] += int(beyond.sum())
            places &= ~beyond
    return places, dict(reasons)


def _why_not(call: Call, facts: EngineFacts, bar: Bar) -> str | None:
    if call.policy_version_min != call.policy_version_max:
        return "the weights changed while it was sampled"
    if call.policy_version_max != bar.version:
        return f"sampled by policy version {call.policy_version_max}; the engine has {bar.version}"
    if call.served_model is not None and call.served_model not in facts.models:
        return f"sampled by model {call.served_model}, which the engine does not serve"
    bent = constraints(call)
    return f"sampled under {', '.join(bent)}" if bent else rescore.incomparable(call.sampling)


def _found(
    sample: Sample,
    differences: NDArray[np.float32],
    places: NDArray[np.bool_],
    reasons: dict[str, int],
    bar: Bar,
) -> RowScore:
    where = np.flatnonzero(places)
    named = sample.session_id, sample.branch_index
    if not where.size:
        return RowScore(*named, 0, 0, None, None, reasons)
    # A score that is missing is no agreement.
    found = np.where(np.isfinite(differences[where]), differences[where], np.inf)
    worst = int(found.argmax())
    return RowScore(
        *named,
        compared=int(where.size),
        beyond=int((found > bar.tolerance).sum()),
        worst=float(found[worst]),
        worst_at=int(where[worst]),
        not_compared=reasons,
    )
