"""The laws of the architecture as checks of any merger: Faithful, Once, Complete, Order-free, nothing broken trained, and
(in `reasons`) nothing sound withheld.

They look at the exported rows and at the calls as they were made, with no help from the code under test: every sampled
token of a session has a logprob of its own, which tells where a trained token comes from.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from polarproxy.batch.sample import Sample, build_samples
from polarproxy.model import CallKind, CallStatus, CapturedCall, FinishReason, Session
from polarproxy.trajectory.branches import Trajectory
from tests.trajectory.build import WHEN, logprob
from tests.trajectory.reasons import nothing_withheld

Calls = Sequence[CapturedCall]
Merger = Callable[[Calls], Trajectory]
"""Makes a trajectory of the calls of session `s`, in whatever order they are given."""

SESSION = Session("s", WHEN)


@dataclass(frozen=True)
class SampledToken:
    """A token as the engine sampled it: everything before it, and itself."""

    call: CapturedCall
    index: int
    context: np.ndarray[tuple[int], np.dtype[np.int32]]
    token: int


def sampled(calls: Calls) -> dict[float, SampledToken]:
    """Every sampled token whose prompt is known, by the logprob that is its own."""
    found: dict[float, SampledToken] = {}
    for captured in calls:
        call = captured.call
        for completion in call.completions if call.prompt_token_ids is not None else ():
            assert call.prompt_token_ids is not None
            whole = np.concatenate([call.prompt_token_ids.array, completion.token_ids.array])
            for place, token in enumerate(completion.token_ids):
                own = logprob(call.ordinal, completion.index, place)
                before = whole[: len(call.prompt_token_ids) + place]
                found[own] = SampledToken(captured, completion.index, before, token)
    return found


def rows_of(trajectory: Trajectory) -> list[Sample]:
    return build_samples(trajectory, SESSION, None)


def trained(rows: Sequence[Sample]) -> Iterator[tuple[Sample, int, float]]:
    """Each trained position: its row, its place there, its logprob."""
    for row in rows:
        for place in np.flatnonzero(row.loss_mask):
            yield row, int(place), float(row.rollout_logprobs[place])


def faithful(calls: Calls, merge: Merger) -> None:
    """Before every trained token stands exactly what the engine conditioned on when it sampled it."""
    truth = sampled(calls)
    for row, place, own in trained(rows_of(merge(calls))):
        token = truth[own]
        assert np.array_equal(row.token_ids[:place], token.context)
        assert row.token_ids[place] == token.token
        assert row.policy_versions[place] == token.call.call.policy_version_min
        assert row.call_ids[row.turn_index[place]] == token.call.call.call_id


def marked(calls: Calls, merge: Merger) -> None:
    """A row that says it is faithful is so; that is all that may be asked of the rule `stitch`."""
    truth = sampled(calls)
    for row, place, own in trained(rows_of(merge(calls))):
        if row.faithful:
            assert np.array_equal(row.token_ids[:place], truth[own].context)


def once(calls: Calls, merge: Merger) -> None:
    """A sampled token is trained in one row, or in none."""
    counts = Counter(own for _, _, own in trained(rows_of(merge(calls))))
    assert all(count == 1 for count in counts.values())


def complete(calls: Calls, merge: Merger) -> None:
    """Every completion is trained whole, or is listed as left out, or its whole call is; and the tokens add up."""
    trajectory = merge(calls)
    rows, truth = rows_of(trajectory), sampled(calls)
    counts = Counter((truth[own].call.call.call_id, truth[own].index) for _, _, own in trained(rows))
    listed = Counter((entry.call_id, entry.choice) for entry in trajectory.left_out)
    for captured in calls:
        call = captured.call
        if listed[(call.call_id, None)]:
            assert [listed[(call.call_id, c.index)] for c in call.completions] == [0] * len(call.completions)
            continue
        assert call.completions
        for completion in call.completions:
            key = (call.call_id, completion.index)
            assert (counts[key], listed[key]) in ((len(completion.token_ids), 0), (0, 1))
    assert max(listed.values(), default=1) == 1
    everything = sum(len(completion.token_ids) for captured in calls for completion in captured.call.completions)
    left_out = sum(entry.tokens for entry in trajectory.left_out)
    assert trajectory.captured_tokens == everything
    assert trajectory.trained_tokens == sum(row.trained_tokens for row in rows) == everything - left_out
    assert trajectory.coverage == (None if not everything else (everything - left_out) / everything)


def order_free(calls: Calls, merge: Merger) -> None:
    """The order in which the calls are handed in does not change the result."""
    expected = merge(calls)
    for step in (-1, 3, 5):
        handed = [*calls[::step], *(call for place, call in enumerate(calls) if step > 0 and place % step)]
        assert len(handed) == len(calls)
        assert merge(handed) == expected


def nothing_broken(calls: Calls, merge: Merger) -> None:
    """What is trained belongs to the work, and was delivered whole, or a later prompt of the session contains it."""
    truth = sampled(calls)
    for own in {own for _, _, own in trained(rows_of(merge(calls)))}:
        token = truth[own]
        assert token.call.kind in (CallKind.MAIN, CallKind.SUBAGENT)
        assert _delivered_whole(token) or _contained_later(token, calls)


def _delivered_whole(token: SampledToken) -> bool:
    (completion,) = (one for one in token.call.call.completions if one.index == token.index)
    finished = token.call.call.status is CallStatus.COMPLETED and completion.finish_reason is not FinishReason.ABORT
    return finished and token.call.delivered and token.index == 0


def _contained_later(token: SampledToken, calls: Calls) -> bool:
    (completion,) = (one for one in token.call.call.completions if one.index == token.index)
    assert token.call.call.prompt_token_ids is not None
    whole = token.call.call.prompt_token_ids + completion.token_ids
    return any(
        other.call.ordinal > token.call.call.ordinal
        and other.call.prompt_token_ids is not None
        and other.call.prompt_token_ids.startswith(whole)
        for other in calls
    )


LAWS = (faithful, once, complete, order_free, nothing_broken, nothing_withheld)
