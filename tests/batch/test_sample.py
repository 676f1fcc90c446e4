"""From branches to rows: what stands where, and rows that contradict themselves are not built."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from numpy.typing import NDArray

from polarproxy.batch.sample import FORMAT_VERSION, Sample, Weighting, build_samples, weights
from polarproxy.errors import InvalidValue
from polarproxy.model import CapturedCall, LogprobsMode, Reward, RewardComponent, Sampling, Session
from polarproxy.trajectory.branches import build_trajectory
from tests.batch.rows import row
from tests.trajectory.build import SAMPLING, WHEN, Said, call, logprob, turn
from tests.trajectory.sessions import sessions

REWARD = Reward(0.5, (RewardComponent("outcome", 1.0),))
SESSION = Session("s", WHEN, task_id="t", group_id="g", harness="calculator", reward=REWARD)


def test_a_row_of_two_turns() -> None:
    first = CapturedCall(call(0, [1, 2], Said([3, 4]), policy_versions=(5, 6)), delivered=True)
    second = CapturedCall(call(1, [1, 2, 3, 4, 9], Said([7]), policy_versions=(6, 6)), delivered=True)
    (made,) = build_samples(build_trajectory("s", [first, second]), SESSION, -1.5)
    nan = float("nan")
    own = [logprob(0, 0, 0), logprob(0, 0, 1), logprob(1, 0, 0)]
    assert made.token_ids.tolist() == [1, 2, 3, 4, 9, 7]
    assert made.loss_mask.tolist() == [0, 0, 1, 1, 0, 1]
    np.testing.assert_array_equal(made.rollout_logprobs, np.asarray([nan, nan, *own[:2], nan, own[2]], np.float32))
    assert made.advantages is not None
    assert made.advantages.tolist() == [0, 0, -1.5, -1.5, 0, -1.5]
    assert made.policy_versions.tolist() == [-1, -1, 5, 5, -1, 6]
    assert made.turn_index.tolist() == [-1, -1, 0, 0, -1, 1]
    assert made.call_ids == ("s-c0", "s-c1")
    assert (made.session_id, made.group_id, made.task_id, made.harness) == ("s", "g", "t", "calculator")
    assert (made.reward, made.components) == (0.5, REWARD.components)
    assert (made.temperature, made.top_p, made.top_k, made.logprobs_mode) == (1.0, 1.0, 0, "processed")
    assert (made.model, made.template_digest, made.faithful, made.format_version) == (
        "tiny",
        "t1",
        True,
        FORMAT_VERSION,
    )
    assert made.trained_tokens == 3


def test_arrays_have_the_types_of_the_format() -> None:
    (made,) = build_samples(build_trajectory("s", [turn(0, [1], Said([2]))]), SESSION, 1.0)
    assert made.advantages is not None
    assert [array.dtype for array in (made.token_ids, made.policy_versions, made.turn_index)] == [np.int32] * 3
    assert [array.dtype for array in (made.rollout_logprobs, made.advantages)] == [np.float32] * 2
    assert made.loss_mask.dtype == np.uint8


def test_a_shared_turn_is_context_in_the_second_row_with_its_logprobs() -> None:
    calls = [turn(0, [1], Said([2])), turn(1, [1, 2, 3], Said([4])), turn(2, [1, 2, 5], Said([6]))]
    first, second = build_samples(build_trajectory("s", calls), SESSION, 1.0)
    assert (first.loss_mask.tolist(), second.loss_mask.tolist()) == ([0, 1, 0, 1], [0, 0, 0, 1])
    assert second.rollout_logprobs[1] == np.float32(logprob(0, 0, 0))
    assert second.turn_index.tolist() == [-1, 0, -1, 1]
    assert (second.branch_index, second.parent_branch, second.shared_prefix) == (1, 0, 2)


def test_no_credit_is_not_zero_credit() -> None:
    trajectory = build_trajectory("s", [turn(0, [1], Said([2]))])
    (without,) = build_samples(trajectory, replace(SESSION, reward=None), None)
    assert (without.advantages, without.reward, without.components) == (None, None, ())
    (zero,) = build_samples(trajectory, SESSION, 0.0)
    assert zero.advantages is not None


def test_logprobs_of_another_count_are_not_shown_at_all() -> None:
    calls = [turn(0, [1], Said([2, 3], [-0.5])), turn(1, [1, 2, 3, 4], Said([5]))]
    (made,) = build_samples(build_trajectory("s", calls), SESSION, 1.0)
    assert np.isnan(made.rollout_logprobs).tolist() == [True, True, True, True, False]
    assert made.turn_index.tolist() == [-1, 0, 0, -1, 1]


def test_sampling_that_turns_do_not_share_is_none_and_modes_may_be_mixed() -> None:
    raw = Sampling(temperature=0.5, logprobs_mode=LogprobsMode.RAW)
    untrained = turn(0, [1], Said([2], None))
    trained = CapturedCall(call(1, [1, 2, 3], Said([4]), sampling=raw), delivered=True)
    last = CapturedCall(call(2, [1, 2, 3, 4, 5], Said([6]), sampling=SAMPLING), delivered=True)
    (made,) = build_samples(build_trajectory("s", [untrained, trained, last]), SESSION, None)
    assert (made.temperature, made.top_p, made.logprobs_mode) == (None, None, "mixed")


def three_rows() -> list[CapturedCall]:
    return [turn(0, [1], Said([9, 9])), turn(1, [2], Said([9])), turn(2, [3], Said([9]))]


@pytest.mark.parametrize(
    ("weighting", "expected"),
    [("per_session", [1 / 3] * 3), ("per_token", [0.5, 0.25, 0.25]), ("per_row", [1.0] * 3)],
)
def test_weights(weighting: Weighting, expected: list[float]) -> None:
    trajectory = build_trajectory("s", three_rows())
    assert weights(trajectory, weighting) == pytest.approx(expected)
    assert [made.loss_weight for made in build_samples(trajectory, SESSION, None, weighting)] == pytest.approx(expected)


@pytest.mark.parametrize("weighting", ["per_session", "per_token", "per_row"])
def test_a_session_that_trains_nothing_makes_no_rows(weighting: Weighting) -> None:
    assert build_samples(build_trajectory("s", []), SESSION, None, weighting) == []


@given(sessions())
def test_the_rows_of_a_session_share_one(calls: list[CapturedCall]) -> None:
    trajectory = build_trajectory("s", calls)
    whole = float(bool(trajectory.branches))
    assert sum(weights(trajectory, "per_session")) == pytest.approx(whole)
    assert sum(weights(trajectory, "per_token")) == pytest.approx(whole)
    assert all(made.trained_tokens > 0 for made in build_samples(trajectory, SESSION, None))


CHANGES: list[tuple[str, Callable[[Sample, NDArray[np.float32]], Sample]]] = [
    ("loss_mask", lambda made, short: replace(made, loss_mask=short.astype(np.uint8))),
    ("rollout_logprobs", lambda made, short: replace(made, rollout_logprobs=short)),
    ("policy_versions", lambda made, short: replace(made, policy_versions=short.astype(np.int32))),
    ("turn_index", lambda made, short: replace(made, turn_index=short.astype(np.int32))),
    ("advantages", lambda made, short: replace(made, advantages=short)),
]


@pytest.mark.parametrize(("name", "change"), CHANGES, ids=[name for name, _ in CHANGES])
@pytest.mark.parametrize("size", [0, 2, 4])
def test_lengths_that_differ_are_refused_by_name_and_number(
    name: str, change: Callable[[Sample, NDArray[np.float32]], Sample], size: int
) -> None:
    made = row([1, 2, 3], session_id="rollout-7", branch=2)
    message = f"branch 2 of session rollout-7: {name} has {size} values for 3 tokens"
    with pytest.raises(InvalidValue, match=message):
        change(made, np.zeros(size, np.float32))


def test_sampling_that_differs_between_turns_is_not_given_for_all() -> None:
    first = replace(SAMPLING, temperature=1.0, top_p=1.0, top_k=0)
    second = replace(first, temperature=0.0, top_p=0.3)
    calls = [turn(0, [1], Said([2])), turn(1, [1, 2, 3], Said([4]))]
    calls = [
        replace(captured, call=replace(captured.call, sampling=sampling))
        for captured, sampling in zip(calls, (first, second), strict=True)
    ]
    (sample,) = build_samples(build_trajectory("s", calls), Session("s", WHEN), None)
    assert (sample.temperature, sample.top_p, sample.top_k) == (None, None, 0)
    assert {"mixed_sampling", "temperature_0", "top_p_below_1"} <= set(sample.warnings)
