"""Turns that are not to be trained: what else is, and which rows are left."""

from dataclasses import replace

from polarproxy.batch.sample import Sample, build_samples
from polarproxy.export.narrowing import of_model, of_one_model_each
from polarproxy.model import CapturedCall, Session
from polarproxy.trajectory.branches import Trajectory, build_trajectory
from tests.trajectory.build import WHEN, Said, call


def sampled(*calls: tuple[list[int], list[int], str | None]) -> Trajectory:
    """Prompt, reply and model of each call."""
    made = (call(at, prompt, Said(reply)) for at, (prompt, reply, _) in enumerate(calls))
    models = (model for _, _, model in calls)
    named = (replace(one, served_model=model) for one, model in zip(made, models, strict=True))
    return build_trajectory("s", [CapturedCall(one, delivered=True) for one in named])


def rows(trajectory: Trajectory) -> list[Sample]:
    return build_samples(trajectory, Session("s", WHEN), None)


def masks(trajectory: Trajectory) -> list[tuple[list[int], list[int]]]:
    return [(row.token_ids.tolist(), row.loss_mask.tolist()) for row in rows(trajectory)]


def test_what_one_row_cannot_train_for_its_model_a_later_row_of_that_model_does() -> None:
    """Both begin with the policy's turn; the first goes on with another model's, which sampled most of the session."""
    whole = sampled(([1], [2], "policy"), ([1, 2, 3], [4, 5, 6], "other"), ([1, 2, 9], [6], "policy"))
    kept = of_one_model_each(whole)
    assert masks(kept) == [([1, 2, 3, 4, 5, 6], [0, 0, 0, 1, 1, 1]), ([1, 2, 9, 6], [0, 1, 0, 1])]
    assert kept.trained_tokens == whole.trained_tokens


def test_without_such_a_row_the_turn_is_context_alone() -> None:
    kept = of_one_model_each(sampled(([1], [2], "policy"), ([1, 2, 3], [4, 5], "other"), ([1, 2, 9], [6], "other")))
    assert masks(kept) == [([1, 2, 3, 4, 5], [0, 0, 0, 1, 1]), ([1, 2, 9, 6], [0, 0, 0, 1])]


def test_rows_of_one_model_each_stay_as_they_are() -> None:
    whole = sampled(([1], [2], "policy"), ([1, 2, 3], [4], None), ([7], [8, 9], "other"))
    assert of_one_model_each(whole) == whole


def test_of_models_that_sampled_as_much_one_is_chosen_all_the_same() -> None:
    assert masks(of_one_model_each(sampled(([1], [2], "a"), ([1, 2, 3], [4], "b")))) == [([1, 2, 3, 4], [0, 0, 0, 1])]


def test_a_parent_branch_is_a_row_that_is_there() -> None:
    """Three rows share a turn of the policy; two of them are another model's but for that."""
    whole = sampled(
        ([1], [2], "policy"),
        ([1, 2, 3], [4], "other"),
        ([1, 2, 5], [6], "policy"),
        ([1, 2, 5, 6, 7], [8], "policy"),
        ([1, 2, 5, 6, 9], [10], "other"),
    )
    told = [(row.branch_index, row.parent_branch, row.shared_prefix) for row in rows(whole)]
    assert told == [(0, None, 0), (1, 0, 2), (2, 1, 4)]
    told = [(row.branch_index, row.parent_branch, row.shared_prefix) for row in rows(of_model(whole, "other"))]
    assert told == [(0, None, 0), (2, 0, 2)]
