"""From a real store to rows, with the account of everything that is left out."""

import re
from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pytest

from polarproxy.credit.estimators import CreditOptions
from polarproxy.credit.rollouts import trained_turns, turn_key
from polarproxy.credit.transcript import SaidTurn, ToolCall, Transcript
from polarproxy.errors import BadExport, Collapsed, NotFound
from polarproxy.export.collect import Collection
from polarproxy.export.options import ADVANTAGES, Options
from polarproxy.model import (
    Call,
    CallKind,
    FinishReason,
    Label,
    LogprobsMode,
    Reward,
    RewardComponent,
    Sampling,
    Session,
    TurnReward,
    Usage,
)
from polarproxy.store.repository import Repository
from polarproxy.trajectory.branches import Trajectory
from tests.export.exported import Fill
from tests.trajectory.build import SAMPLING, WHEN, Said, call


def two_turns() -> list[Call]:
    return [call(0, [1], Said([2])), call(1, [1, 2, 3], Said([4, 5]))]


def session(session_id: str, group_id: str | None = "g") -> Session:
    return Session(session_id, WHEN, group_id=group_id)


def test_an_empty_store(repository: Repository) -> None:
    collection = Collection(repository, Options())
    assert list(collection.rows()) == []
    assert (collection.account.sessions, collection.account.coverage) == (0, None)


def test_rows_with_their_credit_and_the_account(repository: Repository, fill: Fill) -> None:
    fill(session("b"), two_turns(), Reward(1.0))
    fill(session("a"), [call(0, [7], Said([8]))], Reward(0.0))
    collection = Collection(repository, Options())
    low, high = list(collection.rows())
    assert (low.session_id, high.session_id) == ("a", "b")
    assert high.token_ids.tolist() == [1, 2, 3, 4, 5]
    assert high.advantages is not None
    assert low.advantages is not None
    assert high.advantages[1] == -low.advantages[1] == np.float32(0.5 / (0.5**0.5 + 1e-6))
    account = collection.account
    assert (account.sessions, account.calls, account.rows, account.tokens) == (2, 3, 2, 7)
    assert (account.captured_tokens, account.trained_tokens, account.coverage) == (4, 4, 1.0)
    assert account.rewards.mean == 0.5


def test_a_session_without_a_reward_is_out_of_the_loss_and_of_the_baseline(repository: Repository, fill: Fill) -> None:
    fill(session("a"), two_turns(), Reward(1.0))
    fill(session("b"), two_turns(), Reward(0.0))
    fill(session("c"), two_turns(), None)
    collection = Collection(repository, Options())
    assert [row.session_id for row in collection.rows()] == ["a", "b"]
    account = collection.account
    assert account.left_out_sessions == {"no_reward": 1}
    assert account.rewards.mean == 0.5
    assert account.coverage == pytest.approx(2 / 3)


def test_without_credit_every_session_has_rows(repository: Repository, fill: Fill) -> None:
    fill(session("a"), two_turns(), None)
    (made,) = Collection(repository, Options(advantage="none")).rows()
    assert (made.advantages, made.reward) == (None, None)


def test_what_is_left_out_is_counted_by_reason(repository: Repository, fill: Fill) -> None:
    calls = [call(0, [1], Said([2], None)), call(1, [5], Said([6], [-9999.0])), call(2, None, Said([], None))]
    fill(session("a"), calls, Reward(1.0))
    collection = Collection(repository, Options())
    assert list(collection.rows()) == []
    assert collection.account.left_out_calls == {"no_logprobs": 1, "bad_logprob": 1, "no_token_ids": 1}
    assert collection.account.left_out_sessions == {"nothing_trainable": 1}


def test_a_refused_turn_takes_nothing_beside_it_along(repository: Repository, fill: Fill) -> None:
    """Its ancestors were to be trained in its row: they are, in that of its sibling; and it is counted."""
    bad = replace(call(2, [1, 2, 3, 4, 5], Said([6])), usage=Usage(5, 2))
    calls = [call(0, [1], Said([2])), call(1, [1, 2, 3], Said([4])), bad, call(3, [1, 2, 3, 4, 7], Said([8]))]
    fill(session("a"), calls, Reward(1.0))
    collection = Collection(repository, Options(advantage="none"))
    (row,) = collection.rows()
    assert row.token_ids.tolist() == [1, 2, 3, 4, 7, 8]
    assert row.loss_mask.tolist() == [0, 1, 0, 1, 0, 1]
    assert (row.branch_index, row.parent_branch) == (0, None)
    account = collection.account
    assert account.left_out_calls == {"refused": 1}
    assert (account.refused, account.refused_rows) == (1, {"usage_completion": 1})
    assert (account.captured_tokens, account.trained_tokens) == (4, 3)
    loose = Collection(repository, Options(advantage="none", strict=False))
    assert sum(row.trained_tokens for row in loose.rows()) == 4
    assert (loose.account.refused, loose.account.left_out_calls) == (0, {})


def test_a_session_of_which_every_turn_is_refused_is_left_out(repository: Repository, fill: Fill) -> None:
    fill(session("a"), [replace(call(0, [1], Said([2])), usage=Usage(1, 2))], Reward(1.0))
    collection = Collection(repository, Options(advantage="none"))
    assert list(collection.rows()) == []
    assert collection.account.left_out_sessions == {"refused": 1}
    assert collection.account.left_out_calls == {"refused": 1}


def test_one_group_alone(repository: Repository, fill: Fill) -> None:
    fill(session("a", "g"), two_turns(), Reward(1.0))
    fill(session("b", "h"), two_turns(), Reward(0.0))
    assert [row.group_id for row in Collection(repository, Options(group_id="h")).rows()] == ["h"]


def test_the_latest_reward_counts(repository: Repository, fill: Fill) -> None:
    fill(session("a"), two_turns(), Reward(0.0))
    repository.add_reward("a", Reward(0.25))
    (made,) = Collection(repository, Options()).rows()
    assert made.reward == 0.25


@pytest.mark.parametrize(
    ("sampling", "warnings"),
    [
        (SAMPLING, {}),
        (replace(SAMPLING, logprobs_mode=LogprobsMode.RAW), {"logprobs_mode_raw": 1}),
        (replace(SAMPLING, top_p=0.9, top_k=20), {"top_p_below_1": 1, "top_k_set": 1}),
        (Sampling(), {"logprobs_mode_unknown": 1, "temperature_unknown": 1}),
    ],
)
def test_what_a_trainer_should_know_is_said(
    repository: Repository, fill: Fill, sampling: Sampling, warnings: dict[str, int]
) -> None:
    fill(session("a"), [call(0, [1], Said([2]), sampling=sampling)], Reward(1.0))
    collection = Collection(repository, Options())
    list(collection.rows())
    assert collection.account.warnings == warnings


def test_an_unknown_advantage_is_refused_with_those_there_are() -> None:
    with pytest.raises(BadExport, match=re.escape(f"choose one of {', '.join(ADVANTAGES)}")):
        Options(advantage="gpro")


def drifted() -> list[Call]:
    """The reply came back without its first token."""
    return [call(0, [1], Said([8, 2, 9])), call(1, [1, 2, 9, 3], Said([4, 9]))]


def test_a_drift_is_counted_and_both_turns_are_trained(repository: Repository, fill: Fill) -> None:
    fill(session("a"), drifted(), Reward(1.0))
    collection = Collection(repository, Options())
    rows = list(collection.rows())
    account = collection.account
    assert [row.token_ids.tolist() for row in rows] == [[1, 8, 2, 9], [1, 2, 9, 3, 4, 9]]
    assert account.drifts.total() == 1
    assert (account.coverage, account.unfaithful_rows, account.off_context_tokens) == (1.0, 0, 0)


def test_rows_may_be_made_by_another_rule_which_is_marked(repository: Repository, fill: Fill) -> None:
    fill(session("a"), drifted(), Reward(1.0))
    collection = Collection(repository, Options(merge="stitch"))
    (row,) = list(collection.rows())
    assert (row.token_ids.tolist(), row.faithful) == ([1, 8, 2, 9, 3, 4, 9], False)
    assert (collection.account.unfaithful_rows, collection.account.off_context_tokens) == (1, 2)
    assert len(list(Collection(repository, Options(merge="per_request")).rows())) == 2


def test_an_unknown_rule_is_refused_with_those_there_are() -> None:
    with pytest.raises(BadExport, match="prefix_merging, per_request, stitch"):
        Options(merge="glue")


def test_turn_level_credit_reaches_the_tokens(repository: Repository, fill: Fill) -> None:
    fill(session("a"), two_turns(), Reward(1.0))
    fill(session("b"), two_turns(), Reward(0.0))
    high, low = Collection(repository, Options(advantage="gtpo")).rows()
    assert high.advantages is not None
    assert low.advantages is not None
    deviations = np.array([0.425, 0.525, -0.475, -0.475])
    expected = deviations / (np.sqrt((deviations**2).sum() / 3) + 1e-6)
    np.testing.assert_allclose(high.advantages, [0, expected[0], 0, expected[1], expected[1]], rtol=1e-6)
    np.testing.assert_allclose(low.advantages, [0, expected[2], 0, expected[3], expected[3]], rtol=1e-6)


def test_a_turn_reward_finds_its_turn_by_number_and_by_call(repository: Repository, fill: Fill) -> None:
    by_number, by_call = (
        Reward(0.0, turns=(TurnReward(1.0, turn=1),)),
        Reward(0.0, turns=(TurnReward(1.0, call_id="b-0"),)),
    )
    fill(session("a"), two_turns(), by_number)
    fill(session("b"), two_turns(), by_call)
    late, early = Collection(repository, Options(advantage="grpo_turns")).rows()
    assert late.advantages is not None
    assert early.advantages is not None
    # Rewards 0, 1 and 1, 0 have mean 1/2 and variance 1/3; a turn gets the sum from it on.
    unit = 0.5 / (3**-0.5 + 1e-6)
    np.testing.assert_allclose(late.advantages, [0, 0, 0, unit, unit], atol=1e-6)
    np.testing.assert_allclose(early.advantages, [0, 0, 0, -unit, -unit], atol=1e-6)


def test_turn_rewards_that_speak_of_no_trained_turn_are_counted(repository: Repository, fill: Fill) -> None:
    turns = (TurnReward(1.0, turn=1), TurnReward(1.0, turn=2), TurnReward(0.5, call_id="nobody"))
    fill(session("a"), two_turns(), Reward(1.0, turns=turns))
    collection = Collection(repository, Options())
    list(collection.rows())
    assert collection.account.warnings["turn_reward_of_no_trained_turn"] == 2


def stale(versions: tuple[int, int]) -> list[Call]:
    return [call(0, [1], Said([2]), policy_versions=versions), call(1, [1, 2, 3], Said([4]), policy_versions=(9, 9))]


def test_sessions_of_old_weights_are_out_of_the_loss_and_of_the_baseline(repository: Repository, fill: Fill) -> None:
    fill(session("a"), stale((9, 9)), Reward(1.0))
    fill(session("b"), stale((7, 9)), Reward(0.0))
    fill(session("c"), stale((6, 9)), Reward(0.0))
    collection = Collection(repository, Options(max_lag=2))
    assert [row.session_id for row in collection.rows()] == ["a", "b"]
    account = collection.account
    assert (account.left_out_sessions, account.policy_version) == ({"stale": 1}, 9)
    assert (account.rewards.mean, account.lags) == (0.5, {0: 1, 2: 1})
    told = Collection(repository, Options(max_lag=2, policy_version=8))
    assert len(list(told.rows())) == 3
    assert told.account.lags == {-1: 1, 1: 1, 2: 1}
    assert list(Collection(repository, Options(max_lag=0, policy_version=10)).rows()) == []


def test_without_credit_old_sessions_are_left_out_too(repository: Repository, fill: Fill) -> None:
    fill(session("a"), stale((6, 9)), None)
    collection = Collection(repository, Options(advantage="none", max_lag=2))
    assert list(collection.rows()) == []
    assert collection.account.left_out_sessions == {"stale": 1}


def test_groups_without_spread_are_kept_dropped_or_no_export(repository: Repository, fill: Fill) -> None:
    for name, reward in (("a", 1.0), ("b", 1.0)):
        fill(session(name, "easy"), two_turns(), Reward(reward))
    for name, reward in (("c", 1.0), ("d", 0.0)):
        fill(session(name, "fair"), two_turns(), Reward(reward))
    kept = list(Collection(repository, Options()).rows())
    assert [row.advantages is not None and not row.advantages.any() for row in kept] == [True, True, False, False]
    dropping = Collection(repository, Options(on_collapse="drop"))
    assert [row.session_id for row in dropping.rows()] == ["c", "d"]
    assert dropping.account.left_out_sessions == {"flat_group": 2}
    with pytest.raises(Collapsed, match=r"1 of 2 groups are all 0.*: easy;"):
        Collection(repository, Options(on_collapse="fail"))
    fair = Collection(repository, Options(on_collapse="fail", group_id="fair"))
    assert len(list(fair.rows())) == 2


def test_what_an_estimator_drops_is_counted(repository: Repository, fill: Fill) -> None:
    cut = [call(0, [1], Said([2], finish=FinishReason.LENGTH))]
    fill(session("a"), two_turns(), Reward(1.0))
    fill(session("b"), cut, Reward(0.0))
    fill(session("c", "h"), two_turns(), Reward(0.0))
    collection = Collection(repository, Options(advantage="dapo"))
    assert [row.session_id for row in collection.rows()] == ["a"]
    assert collection.account.left_out_sessions == {"overlong": 1, "flat_group": 1}


def test_subagents_are_left_out_and_counted(repository: Repository, fill: Fill) -> None:
    fill(session("a"), [call(0, [1], Said([2])), call(1, [7], Said([8]))], Reward(1.0))
    fill(session("b"), [call(0, [1], Said([2]))], Reward(0.0))
    repository.add_label("a-1", Label(CallKind.SUBAGENT, "me", WHEN))
    assert len(list(Collection(repository, Options()).rows())) == 3
    collection = Collection(repository, Options(credit=CreditOptions(subagents="exclude")))
    rows = list(collection.rows())
    assert [(row.session_id, row.branch_index, row.loss_weight) for row in rows] == [("a", 0, 1.0), ("b", 0, 1.0)]
    assert collection.account.left_out_turns == {"subagent": 1}


def test_an_export_says_which_rewards_it_was_made_with(repository: Repository, fill: Fill) -> None:
    fill(session("a"), two_turns(), Reward(1.0))
    fill(session("b"), two_turns(), Reward(0.0, spec="e" * 32))
    before = Collection(repository, Options()).account.reward_version
    assert before == Collection(repository, Options(advantage="rloo")).account.reward_version
    assert before.specs == {"e" * 32: 1, "given": 1}
    repository.add_reward("a", Reward(1.0, (RewardComponent("tests", 1.0),)))
    assert Collection(repository, Options()).account.reward_version.digest != before.digest
    repository.add_reward("a", Reward(1.0))
    assert Collection(repository, Options()).account.reward_version == before


def test_calls_that_are_read_before_the_first_row_are_shown(repository: Repository, fill: Fill) -> None:
    fill(session("a"), two_turns(), Reward(1.0))
    seen: list[tuple[list[str], int]] = []

    def watch(sessions: Iterable[Session], count: int) -> Iterable[Session]:
        seen.append(([one.session_id for one in sessions], count))
        return sessions

    Collection(repository, Options(), watch=watch)
    assert seen == []
    Collection(repository, Options(advantage="gtpo"), watch=watch)
    assert seen == [(["a"], 1)]


def test_what_turns_say_reaches_an_estimator_that_asks(repository: Repository, fill: Fill) -> None:
    """The failure with the code of the success is worth half of it, the other one nothing."""
    for name, reward in (("good", 1.0), ("near", 0.0), ("other", 0.0)):
        fill(session(name), [call(0, [1], Said([2]))], Reward(reward))

    def transcribe(trajectory: Trajectory) -> Transcript:
        arguments = "zzz" if trajectory.session_id == "other" else "{}"
        (turn,) = trained_turns(trajectory)
        return Transcript("", (SaidTurn(turn_key(turn), "", tools=(ToolCall("bash", arguments),)),))

    options = Options(advantage="gtpo", credit=CreditOptions(format_penalty=0.0))
    rows = Collection(repository, options, transcribe=transcribe).rows()
    credit = {row.session_id: float(row.advantages[1]) for row in rows if row.advantages is not None}
    assert credit == {"good": pytest.approx(1.0, abs=1e-4), "near": 0.0, "other": pytest.approx(-1.0, abs=1e-4)}


def of_two_models() -> list[Call]:
    return [
        replace(call(0, [1], Said([2])), served_model="policy"),
        replace(call(1, [1, 2, 3], Said([4, 5])), served_model="other"),
    ]


def test_a_row_of_two_models_trains_the_one_that_sampled_most(repository: Repository, fill: Fill) -> None:
    fill(session("a"), of_two_models(), Reward(1.0))
    fill(session("b"), [replace(one, served_model="policy") for one in two_turns()], Reward(0.0))
    strict = Collection(repository, Options())
    first, _ = strict.rows()
    assert (first.token_ids.tolist(), first.loss_mask.tolist()) == ([1, 2, 3, 4, 5], [0, 0, 0, 1, 1])
    assert (first.model, first.warnings.count("mixed_models")) == ("other", 0)
    assert (strict.account.refused_rows, strict.account.models) == ({"mixed_models": 1}, {"other": 1, "policy": 1})
    assert (strict.account.left_out_turns, strict.account.refused) == ({"mixed_models": 1}, 0)
    lax = Collection(repository, Options(strict=False))
    assert [row.warnings.count("mixed_models") for row in lax.rows()] == [1, 0]
    assert lax.account.models == {"several": 1, "policy": 1}


def test_one_model_is_trained_and_the_others_are_context(repository: Repository, fill: Fill) -> None:
    fill(session("a"), of_two_models(), Reward(1.0, turns=(TurnReward(0.5, turn=1),)))
    fill(session("b"), [replace(two_turns()[0], served_model="other")], Reward(0.0))
    collection = Collection(repository, Options(model="other", advantage="grpo_turns"))
    first, second = collection.rows()
    assert (first.token_ids.tolist(), first.loss_mask.tolist()) == ([1, 2, 3, 4, 5], [0, 0, 0, 1, 1])
    assert second.loss_mask.tolist() == [0, 1]
    account = collection.account
    assert (account.left_out_turns, account.refused, account.trained_tokens) == ({"other_model": 1}, 0, 3)
    assert account.warnings == {}
    assert collection._crediting.rollouts["a"].turns[0].reward == 0.5
    with pytest.raises(NotFound, match="no call was sampled by the model 'othr'; did you mean 'other'"):
        Collection(repository, Options(model="othr"))
    with pytest.raises(NotFound, match="no call was sampled by the model 'x'; there are: other, "):
        Collection(repository, Options(model="x"))


def test_without_credit_subagents_can_be_left_out(repository: Repository, fill: Fill) -> None:
    fill(session("a"), [call(0, [1], Said([2])), call(1, [7], Said([8]))], None)
    repository.add_label("a-1", Label(CallKind.SUBAGENT, "me", WHEN))
    collection = Collection(repository, Options(advantage="none", credit=CreditOptions(subagents="exclude")))
    (row,) = collection.rows()
    assert (row.token_ids.tolist(), row.advantages) == ([1, 2], None)
    assert collection.account.left_out_turns == {"subagent": 1}


def test_coverage_is_that_of_the_rows_that_are_left(repository: Repository, fill: Fill) -> None:
    wrong = replace(call(1, [30], Said(list(range(100, 160)))), usage=Usage(1, 3))
    fill(session("a"), [call(0, [1], Said([2])), wrong], Reward(1.0))
    collection = Collection(repository, Options(min_coverage=0.9))
    assert list(collection.rows()) == []
    assert (collection.account.left_out_sessions, collection.account.refused) == ({"low_coverage": 1}, 1)


def test_a_session_that_has_just_the_least_coverage_is_taken(repository: Repository, fill: Fill) -> None:
    fill(session("a"), [call(0, [1], Said([2])), call(1, [7], Said([8], None))], Reward(1.0))
    assert len(list(Collection(repository, Options(min_coverage=0.5)).rows())) == 1
    assert list(Collection(repository, Options(min_coverage=0.51)).rows()) == []


def test_the_estimator_says_which_groups_teach_nothing(repository: Repository, fill: Fill) -> None:
    """All rewards are 1: by their parts the sessions of `parts` differ, those of `same` do not."""
    for name, correct in (("a", 1.0), ("b", 0.0)):
        fill(session(name, "parts"), two_turns(), Reward(1.0, (RewardComponent("correct", correct),)))
    for name in ("c", "d"):
        fill(session(name, "same"), two_turns(), Reward(1.0, (RewardComponent("correct", 1.0),)))

    def left(advantage: str) -> tuple[list[str], list[str]]:
        collection = Collection(repository, Options(advantage=advantage, on_collapse="drop"))
        rows = [row.session_id for row in collection.rows()]
        return rows, [sign for sign in collection.account.collapse.signs if "groups" in sign]

    said = "of 2 groups have no spread in their rewards and teach nothing"
    assert left("gdpo") == (["a", "b"], [f"1 {said}"])
    assert left("grpo") == ([], [f"2 {said}"])
    with pytest.raises(Collapsed, match=r"1 of 2 groups are all 0.*: same;"):
        Collection(repository, Options(advantage="gdpo", on_collapse="fail"))


def test_a_session_is_cut_when_its_main_agent_was(repository: Repository, fill: Fill) -> None:
    cut = Said([8], finish=FinishReason.LENGTH)
    fill(session("a"), [call(0, [1], Said([2])), call(1, [7], cut)], Reward(1.0))
    fill(session("b"), [call(0, [1], cut), call(1, [7], Said([8]))], Reward(0.0))
    for name in ("a", "b"):
        repository.add_label(f"{name}-1", Label(CallKind.SUBAGENT, "me", WHEN))
    collection = Collection(repository, Options(advantage="dapo"))
    assert {row.session_id for row in collection.rows()} == {"a"}
    assert collection.account.left_out_sessions == {"overlong": 1}
