"""From branches to rows: what stands where, and rows that contradict themselves are not built."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from polarproxy.batch.sample import FORMAT_VERSION, Sample, Weighting, build_samples, weights
from polarproxy.credit.estimators import SessionCredit
from polarproxy.credit.rollouts import trained_turns, turn_key
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


WEIGHTINGS: tuple[Weighting, ...] = ("per_session", "per_token", "per_row")


def three_rows() -> list[CapturedCall]:
    return [turn(0, [1], Said([9, 9])), turn(1, [2], Said([9])), turn(2, [3], Said([9]))]


@pytest.mark.parametrize(
    ("weighting", "expected"),
    [("per_session", [1 / 3] * 3), ("per_token", [0.5, 0.25, 0.25]), ("per_row", [1.0] * 3)],
)
def test_weights(weighting: Weighting, expected: list[float]) -> None:
    trajectory = build_trajectory("s", three_rows())
    assert weights([2, 1, 1], weighting) == pytest.approx(expected)
    assert [made.loss_weight for made in build_samples(trajectory, SESSION, None, weighting)] == pytest.approx(expected)


@pytest.mark.parametrize("weighting", ["per_session", "per_token", "per_row"])
def test_a_session_that_trains_nothing_makes_no_rows(weighting: Weighting) -> None:
    assert build_samples(build_trajectory("s", []), SESSION, None, weighting) == []


@given(sessions())
def test_the_rows_of_a_session_share_one(calls: list[CapturedCall]) -> None:
    trajectory = build_trajectory("s", calls)
    whole = float(bool(trajectory.branches))
    for weighting in WEIGHTINGS[:2]:
        rows = build_samples(trajectory, SESSION, None, weighting)
        assert sum(made.loss_weight for made in rows) == pytest.approx(whole)
        assert all(made.trained_tokens > 0 for made in rows)


@given(sessions(), st.data())
def test_turns_without_credit_are_context(calls: list[CapturedCall], data: st.DataObject) -> None:
    """They have mask 0; rows that train nothing then are gone, and the others share the weight of the session."""
    trajectory = build_trajectory("s", calls)
    keys = [turn_key(own) for own in trained_turns(trajectory)]
    credit = SessionCredit(turns={key: data.draw(st.sampled_from([None, 0.5, -1.0])) for key in keys})
    rows = build_samples(trajectory, SESSION, credit)
    kept = {key: value for key in keys if (value := credit.of(key)) is not None}
    assert sum(made.loss_weight for made in rows) == pytest.approx(float(bool(kept)))
    found = sum(int((made.advantages == 0.5).sum()) for made in rows if made.advantages is not None)
    lengths = {turn_key(own): len(own.node.completion.token_ids) for own in trained_turns(trajectory)}
    assert found == sum(lengths[key] for key, value in kept.items() if value == 0.5)
    assert sum(made.trained_tokens for made in rows) == sum(lengths[key] for key in kept)
    assert {made.session_tokens for made in rows} <= {sum(lengths[key] for key in kept)}


def test_every_turn_has_its_own_credit_and_the_sequence_its_sums() -> None:
    calls = [turn(0, [1], Said([2, 3])), turn(1, [1, 2, 3, 4], Said([5])), turn(2, [7], Said([8]))]
    credit = SessionCredit(-1.0, {("s-c0", 0): 0.25, ("s-c1", 0): None})
    first, second = build_samples(build_trajectory("s", calls), SESSION, credit)
    assert first.advantages is not None
    assert second.advantages is not None
    assert first.advantages.tolist() == [0, 0.25, 0.25, 0, 0]
    assert first.loss_mask.tolist() == [0, 1, 1, 0, 0]
    assert second.advantages.tolist() == [0, -1.0]
    total = sum(float(own.rollout_logprobs[own.loss_mask == 1].sum()) for own in (first, second))
    for made in (first, second):
        assert made.session_tokens == 3
        assert made.session_logprob == pytest.approx(total)


@pytest.mark.parametrize(
    ("versions", "warnings"),
    [
        ([(3, 3), (3, 3)], set()),
        ([(3, 4), (4, 4)], {"policy_changed_within_turn", "policy_changed_between_turns"}),
        ([(3, 3), (4, 4)], {"policy_changed_between_turns"}),
        ([(3, 4), (3, 4)], {"policy_changed_within_turn"}),
        ([(3, 3), (3, 4)], {"policy_changed_within_turn", "policy_changed_between_turns"}),
    ],
)
def test_turns_of_several_policy_versions_are_flagged(versions: list[tuple[int, int]], warnings: set[str]) -> None:
    prompts = [[1], [1, 2, 3]]
    calls = [
        CapturedCall(call(place, prompts[place], Said([2]), policy_versions=own), True)
        for place, own in enumerate(versions)
    ]
    (row,) = build_samples(build_trajectory("s", calls), SESSION, None)
    assert set(row.warnings) == warnings
    assert row.policy_versions[row.loss_mask == 1].tolist() == [low for low, _ in versions]


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


def test_what_is_only_context_says_nothing_of_how_a_row_was_sampled() -> None:
    """Of the turns of a row those that another row trains, or none, count for nothing."""
    other = replace(SAMPLING, temperature=0.5, top_p=0.25, top_k=7, logprobs_mode=LogprobsMode.RAW)
    first = replace(call(0, [1], Said([2]), sampling=other, policy_versions=(0, 1)), template_digest="t0")
    first = replace(first, served_model="large")
    forks = [call(1, [1, 2, 3], Said([4])), call(2, [1, 2, 5], Said([6]))]
    trajectory = build_trajectory("s", [CapturedCall(one, delivered=True) for one in (first, *forks)])
    both, fork = build_samples(trajectory, SESSION, 1.0)
    assert (fork.temperature, fork.top_p, fork.top_k, fork.logprobs_mode) == (1.0, 1.0, 0, "processed")
    assert (fork.model, fork.template_digest, fork.warnings) == ("tiny", "t1", ())
    assert (both.temperature, both.top_p, both.top_k, both.logprobs_mode) == (None, None, None, "mixed")
    assert (both.model, both.template_digest) == (None, None)


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
