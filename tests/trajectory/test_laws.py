"""The laws of the architecture, over random sessions: Faithful, Once, Complete, Order-free.

They are checked on the exported rows, against the calls as they were made, with no help from the code under test: every
sampled token of a session has a logprob of its own, which tells where a trained token comes from.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from polarproxy.batch.sample import Sample, build_samples
from polarproxy.model import CallKind, CallStatus, CapturedCall, FinishReason, Session
from polarproxy.trajectory.branches import Trajectory, build_trajectory
from tests.trajectory.build import WHEN, logprob
from tests.trajectory.sessions import sessions

SESSION = Session("s", WHEN)
LAWS = settings(max_examples=300)


@dataclass(frozen=True)
class Rebuilt:
    """A session as it was made, and what is made of it."""

    calls: list[CapturedCall]
    trajectory: Trajectory
    rows: list[Sample]


def rebuild(calls: list[CapturedCall]) -> Rebuilt:
    trajectory = build_trajectory("s", calls)
    return Rebuilt(calls, trajectory, build_samples(trajectory, SESSION, None))


@dataclass(frozen=True)
class SampledToken:
    """A token as the engine sampled it: everything before it, and itself."""

    call: CapturedCall
    index: int
    context: tuple[int, ...]
    token: int


def sampled(calls: list[CapturedCall]) -> dict[float, SampledToken]:
    """Every sampled token whose prompt is known, by the logprob that is its own."""
    found: dict[float, SampledToken] = {}
    for captured in calls:
        call = captured.call
        for completion in call.completions if call.prompt_token_ids is not None else ():
            context = list(call.prompt_token_ids or ())
            for place, token in enumerate(completion.token_ids):
                own = logprob(call.ordinal, completion.index, place)
                found[own] = SampledToken(captured, completion.index, tuple(context), token)
                context.append(token)
    return found


def trained_positions(row: Sample) -> Iterator[int]:
    yield from (int(place) for place in np.flatnonzero(row.loss_mask))


@given(sessions())
@LAWS
def test_faithful(calls: list[CapturedCall]) -> None:
    """Before every trained token stands exactly what the engine conditioned on when it sampled it."""
    truth = sampled(calls)
    for row in rebuild(calls).rows:
        for place in trained_positions(row):
            token = truth[float(row.rollout_logprobs[place])]
            assert tuple(row.token_ids[:place].tolist()) == token.context
            assert row.token_ids[place] == token.token
            assert row.policy_versions[place] == token.call.call.policy_version_min
            assert row.call_ids[row.turn_index[place]] == token.call.call.call_id


@given(sessions())
@LAWS
def test_once(calls: list[CapturedCall]) -> None:
    """A sampled token is trained in one row, or in none."""
    trained = Counter(float(row.rollout_logprobs[p]) for row in rebuild(calls).rows for p in trained_positions(row))
    assert all(count == 1 for count in trained.values())


@given(sessions())
@LAWS
def test_complete(calls: list[CapturedCall]) -> None:
    """Every completion is trained whole, or is listed as left out, or its whole call is; and the tokens add up."""
    rebuilt = rebuild(calls)
    truth = sampled(calls)
    trained = Counter(
        (truth[float(row.rollout_logprobs[p])].call.call.call_id, truth[float(row.rollout_logprobs[p])].index)
        for row in rebuilt.rows
        for p in trained_positions(row)
    )
    listed = Counter((entry.call_id, entry.choice) for entry in rebuilt.trajectory.left_out)
    for captured in calls:
        call = captured.call
        if listed[(call.call_id, None)]:
            assert [listed[(call.call_id, c.index)] for c in call.completions] == [0] * len(call.completions)
            continue
        assert call.completions
        for completion in call.completions:
            key = (call.call_id, completion.index)
            assert (trained[key], listed[key]) in ((len(completion.token_ids), 0), (0, 1))
    assert max(listed.values(), default=1) == 1
    everything = sum(len(completion.token_ids) for captured in calls for completion in captured.call.completions)
    left_out = sum(entry.tokens for entry in rebuilt.trajectory.left_out)
    assert rebuilt.trajectory.captured_tokens == everything
    assert rebuilt.trajectory.trained_tokens == sum(row.trained_tokens for row in rebuilt.rows) == everything - left_out
    assert rebuilt.trajectory.coverage == (None if not everything else (everything - left_out) / everything)


@given(st.data())
@LAWS
def test_order_free(data: st.DataObject) -> None:
    """The order in which the calls are handed in does not change the result."""
    calls = data.draw(sessions())
    assert build_trajectory("s", data.draw(st.permutations(calls))) == build_trajectory("s", calls)


@given(sessions())
@LAWS
def test_nothing_broken_is_trained_by_itself(calls: list[CapturedCall]) -> None:
    """What is trained was delivered whole, or a later prompt of the session contains it."""
    truth = sampled(calls)
    for row in rebuild(calls).rows:
        for place in trained_positions(row):
            token = truth[float(row.rollout_logprobs[place])]
            assert token.call.kind in (CallKind.MAIN, CallKind.SUBAGENT)
            assert delivered_whole(token) or contained_later(token, calls)


def delivered_whole(token: SampledToken) -> bool:
    (completion,) = (one for one in token.call.call.completions if one.index == token.index)
    finished = token.call.call.status is CallStatus.COMPLETED and completion.finish_reason is not FinishReason.ABORT
    return finished and token.call.delivered and token.index == 0


def contained_later(token: SampledToken, calls: list[CapturedCall]) -> bool:
    (completion,) = (one for one in token.call.call.completions if one.index == token.index)
    assert token.call.call.prompt_token_ids is not None
    whole = token.call.call.prompt_token_ids + completion.token_ids
    return any(
        other.call.ordinal > token.call.call.ordinal
        and other.call.prompt_token_ids is not None
        and other.call.prompt_token_ids.startswith(whole)
        for other in calls
    )
