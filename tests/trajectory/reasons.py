"""One more law: what is left out is left out for its own fault, by what the calls themselves say, found by trying everything.

A delivered, whole reply of the work, the first of its choices, with sound numbers, is trained unless it was asked again.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from polarproxy.model import CallKind, CallStatus, CapturedCall, Completion, FinishReason, TokenIds
from polarproxy.trajectory.branches import Trajectory
from polarproxy.trajectory.eligibility import SENTINEL, TOP_LOGPROB, Reason
from polarproxy.trajectory.repeats import RETRY_COUNT
from tests.trajectory.sessions import AGENT

Calls = Sequence[CapturedCall]

BROKEN_OFF = (CallStatus.ABORTED, CallStatus.ENGINE_ERROR, CallStatus.TIMEOUT)
ABORT, LENGTH = FinishReason.ABORT, FinishReason.LENGTH


def nothing_withheld(calls: Calls, merge: Callable[[Calls], Trajectory]) -> None:
    """Every reason is true of what is left out for it."""
    by_id = {captured.call.call_id: captured for captured in calls}
    for entry in merge(calls).left_out:
        captured = by_id[entry.call_id]
        if entry.choice is None:
            assert captured.call.prompt_token_ids is None or not captured.call.completions
            continue
        (completion,) = (one for one in captured.call.completions if one.index == entry.choice)
        case = Case(captured, completion, calls)
        assert case.claims()[entry.reason], (entry, case.claims())
        assert entry.tokens == len(completion.token_ids)


@dataclass(frozen=True)
class Case:
    """A completion that is left out."""

    captured: CapturedCall
    completion: Completion
    calls: Calls

    def claims(self) -> dict[Reason, bool]:
        """For each reason whether it is true."""
        call, ended, count = self.captured.call, self.completion.finish_reason, len(self.completion.token_ids)
        logprobs = self.completion.logprobs
        values = [] if logprobs is None else [float(value) for value in logprobs.array]
        loose = self.loose()
        cut_off = call.status in BROKEN_OFF or ended is ABORT
        return dict.fromkeys(Reason, False) | {
            Reason.NOTHING_SAMPLED: not count and ended in (None, ABORT),
            Reason.NO_TOKEN_IDS: not count and ended not in (None, ABORT),
            Reason.NO_LOGPROBS: count > 0 and logprobs is None,
            Reason.LOGPROB_COUNT: logprobs is not None and len(values) != count,
            Reason.BAD_LOGPROB: not all(SENTINEL < value <= TOP_LOGPROB for value in values),
            Reason.SIDE_CALL: self.captured.kind not in (CallKind.MAIN, CallKind.SUBAGENT, CallKind.UNKNOWN),
            Reason.UNKNOWN_KIND: self.captured.kind is CallKind.UNKNOWN,
            Reason.ABORTED: loose and (call.status is CallStatus.ABORTED or ended is ABORT),
            Reason.FAILED: loose and call.status in (CallStatus.ENGINE_ERROR, CallStatus.TIMEOUT),
            Reason.UNDELIVERED: loose and not self.captured.delivered,
            Reason.EXTRA_CHOICE: loose and self.completion.index > 0,
            Reason.SUPERSEDED: loose and bool(self.again()) and (cut_off or self.counted_up() or self.undelivered),
            Reason.DISCARDED_AT_LENGTH: loose and bool(self.again()) and ended is LENGTH,
        }

    @property
    def undelivered(self) -> bool:
        return not self.captured.delivered

    @property
    def whole(self) -> TokenIds:
        """P ⊕ C."""
        assert self.captured.call.prompt_token_ids is not None
        return self.captured.call.prompt_token_ids + self.completion.token_ids

    def again(self) -> list[CapturedCall]:
        """Later calls of its agent with its prompt that sampled something."""
        call = self.captured.call
        return [
            other
            for other in self.calls
            if other.call.ordinal > call.ordinal
            and other.call.prompt_token_ids == call.prompt_token_ids
            and said(other, AGENT) == said(self.captured, AGENT)
            and any(one.token_ids for one in other.call.completions)
        ]

    def counted_up(self) -> bool:
        return any(tries(other) > tries(self.captured) for other in self.again())

    def loose(self) -> bool:
        """Whether no later prompt goes on from it: none contains it, or they go on from others that begin as it does."""
        later = [
            other
            for other in self.calls
            if other.call.ordinal > self.captured.call.ordinal
            and other.call.prompt_token_ids is not None
            and other.call.prompt_token_ids.startswith(self.whole)
            # A request that came to nothing is no node of the forest, and so vouches for nothing.
            and other.call.completions
        ]
        return all(map(self._is_of_another, later)) or self._a_longer_try_came_first(later)

    def _is_of_another(self, later: CapturedCall) -> bool:
        """Whether its prompt also contains another reply that begins as this one does, to its end."""
        prompt = later.call.prompt_token_ids
        return prompt is not None and any(
            other.call.prompt_token_ids is not None
            and (own := other.call.prompt_token_ids + one.token_ids).startswith(self.whole)
            and prompt.startswith(own)
            for other in self.calls
            if other.call.ordinal < later.call.ordinal
            for one in other.call.completions
            if one is not self.completion
        )

    def _a_longer_try_came_first(self, later: Calls) -> bool:
        """Whether it was cut, and asked again at greater length before anything went on from it."""
        first = min(other.call.ordinal for other in later)
        cut = self.captured.call.status in BROKEN_OFF or self.completion.finish_reason in (ABORT, LENGTH)
        return cut and any(
            other.call.ordinal < first
            and len(one.token_ids) > len(self.completion.token_ids)
            and one.token_ids.startswith(self.completion.token_ids)
            for other in self.again()
            for one in other.call.completions
        )


def said(captured: CapturedCall, name: str) -> str | None:
    """The value of a header."""
    return dict(captured.call.headers).get(name)


def tries(captured: CapturedCall) -> int:
    return int(said(captured, RETRY_COUNT) or 0)
