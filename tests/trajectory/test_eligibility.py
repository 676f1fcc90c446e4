"""What is trained, and for everything that is not, why."""

from dataclasses import replace

import pytest

from polarproxy.model import CallKind, CallStatus, CapturedCall, Caveat, FinishReason
from polarproxy.trajectory.branches import LeftOut, build_trajectory
from polarproxy.trajectory.eligibility import Reason
from tests.trajectory.build import Said, turn

LENGTH = FinishReason.LENGTH


def of_several_prompts(captured: CapturedCall) -> CapturedCall:
    return replace(captured, call=replace(captured.call, caveat=Caveat.SEVERAL_PROMPTS))


def of_another_prompt(captured: CapturedCall) -> CapturedCall:
    return replace(captured, call=replace(captured.call, caveat=Caveat.OTHER_PROMPT))


def left_out(*calls: CapturedCall) -> list[tuple[str, Reason]]:
    return [(entry.call_id, entry.reason) for entry in build_trajectory("s", calls).left_out]


def trained(*calls: CapturedCall) -> list[str]:
    return [
        turn.node.captured.call.call_id
        for branch in build_trajectory("s", calls).branches
        for turn in branch.turns
        if turn.trained
    ]


def test_a_delivered_completion_with_its_logprobs_is_trained() -> None:
    assert trained(turn(0, [1], Said([2]))) == ["s-c0"]


SIDE = set(CallKind) - {CallKind.MAIN, CallKind.SUBAGENT}
UNTRAINED = dict.fromkeys(SIDE, Reason.SIDE_CALL) | {CallKind.UNKNOWN: Reason.UNKNOWN_KIND}

CASES = [
    pytest.param(turn(0, None, status=CallStatus.REJECTED), Reason.REJECTED, id="rejected"),
    pytest.param(turn(0, None, Said([], None)), Reason.NO_TOKEN_IDS, id="no_ids_at_all"),
    pytest.param(turn(0, None, Said([2])), Reason.NO_TOKEN_IDS, id="no_ids_of_the_prompt"),
    pytest.param(turn(0, [1], Said([], None)), Reason.NO_TOKEN_IDS, id="no_ids_of_a_finished_completion"),
    pytest.param(
        turn(0, [1], Said([], None, finish=None), status=CallStatus.ABORTED),
        Reason.NOTHING_SAMPLED,
        id="left_before_the_first_token",
    ),
    pytest.param(turn(0, [1], Said([], finish=FinishReason.ABORT)), Reason.NOTHING_SAMPLED, id="aborted_while_waiting"),
    pytest.param(turn(0, None, status=CallStatus.ABORTED), Reason.ABORTED, id="left_before_the_engine_answered"),
    pytest.param(turn(0, None, status=CallStatus.TIMEOUT), Reason.FAILED, id="the_engine_never_answered"),
    pytest.param(
        of_several_prompts(turn(0, None, Said([], None), Said([], None, index=1))),
        Reason.SEVERAL_PROMPTS,
        id="several_prompts",
    ),
    pytest.param(
        of_several_prompts(turn(0, None, status=CallStatus.REJECTED)), Reason.REJECTED, id="several_prompts_refused"
    ),
    pytest.param(of_another_prompt(turn(0, [1], Said([2]))), Reason.OTHER_PROMPT, id="another_prompt_than_given"),
    pytest.param(turn(0, [1], Said([2], None)), Reason.NO_LOGPROBS, id="no_logprobs"),
    pytest.param(turn(0, [1], Said([2, 3], [-0.5])), Reason.LOGPROB_COUNT, id="one_logprob_short"),
    pytest.param(turn(0, [1], Said([2], [-0.5, -0.5])), Reason.LOGPROB_COUNT, id="one_logprob_too_many"),
    pytest.param(turn(0, [1], Said([2, 3], [])), Reason.LOGPROB_COUNT, id="an_empty_list_of_logprobs"),
    pytest.param(turn(0, [1], Said([2, 3], [-0.5, None])), Reason.BAD_LOGPROB, id="a_missing_logprob"),
    pytest.param(turn(0, [1], Said([2], [-9001.0])), Reason.BAD_LOGPROB, id="near_the_sentinel"),
    pytest.param(turn(0, [1], Said([2], [0.001])), Reason.BAD_LOGPROB, id="a_probability_above_1"),
    pytest.param(turn(0, [1], Said([2], [float("nan")])), Reason.BAD_LOGPROB, id="nan"),
    pytest.param(turn(0, [1], Said([2], [float("-inf")])), Reason.BAD_LOGPROB, id="minus_infinity"),
    pytest.param(turn(0, [1], Said([2], [-9999.0])), Reason.BAD_LOGPROB, id="vllms_sentinel"),
    pytest.param(turn(0, [1], Said([2], finish=None), status=CallStatus.ABORTED), Reason.ABORTED, id="client_left"),
    pytest.param(turn(0, [1], Said([2], finish=FinishReason.ABORT)), Reason.ABORTED, id="engine_aborted"),
    pytest.param(turn(0, [1], Said([2]), status=CallStatus.ENGINE_ERROR), Reason.FAILED, id="engine_died"),
    pytest.param(turn(0, [1], Said([2]), status=CallStatus.TIMEOUT), Reason.FAILED, id="engine_fell_silent"),
    pytest.param(turn(0, [1], Said([2]), delivered=False), Reason.UNDELIVERED, id="undelivered"),
    *(
        pytest.param(turn(0, [1], Said([2]), kind=kind), UNTRAINED[kind], id=f"kind_{kind}")
        for kind in CallKind
        if kind in SIDE
    ),
]


@pytest.mark.parametrize(("call", "reason"), CASES)
def test_alone_it_is_left_out_with_its_reason(call: CapturedCall, reason: Reason) -> None:
    assert left_out(call) == [("s-c0", reason)]
    assert trained(call) == []


def test_every_reason_has_an_example() -> None:
    elsewhere = {Reason.SUPERSEDED, Reason.EXTRA_CHOICE, Reason.DISCARDED_AT_LENGTH, Reason.NOT_SAMPLED, Reason.MEDIA}
    elsewhere.add(Reason.REFUSED)
    assert {case.values[1] for case in CASES} | elsewhere == set(Reason)


@pytest.mark.parametrize("kind", [CallKind.MAIN, CallKind.SUBAGENT])
def test_the_work_itself_is_trained(kind: CallKind) -> None:
    assert trained(turn(0, [1], Said([2]), kind=kind)) == ["s-c0"]


def test_a_very_improbable_token_is_no_sentinel_and_rounding_is_no_probability_above_1() -> None:
    assert trained(turn(0, [1], Said([2, 3, 4], [-8999.0, -0.0, 5e-6]))) == ["s-c0"]


@pytest.mark.parametrize(
    "first",
    [
        turn(0, [1], Said([2]), delivered=False),
        turn(0, [1], Said([2], finish=None), status=CallStatus.ABORTED, delivered=False),
        turn(0, [1], Said([2]), status=CallStatus.ENGINE_ERROR, delivered=False),
        turn(0, [1], Said([2], finish=LENGTH)),
    ],
    ids=["undelivered", "aborted", "failed", "length"],
)
def test_a_later_prompt_that_contains_it_vouches_for_it(first: CapturedCall) -> None:
    assert trained(first, turn(1, [1, 2, 3], Said([4]))) == ["s-c0", "s-c1"]


@pytest.mark.parametrize(
    "first",
    [
        turn(0, [1], Said([2], None)),
        turn(0, [1], Said([2], [-9999.0])),
        turn(0, [1], Said([2], [None])),
        turn(0, [1], Said([2], [])),
        turn(0, [1], Said([2]), kind=CallKind.TITLE),
    ],
    ids=["no_logprobs", "sentinel", "missing", "count", "title"],
)
def test_but_nothing_vouches_for_bad_numbers_or_another_purpose(first: CapturedCall) -> None:
    """It stays the context of what follows, which is trained."""
    second = turn(1, [1, 2, 3], Said([4]))
    assert trained(first, second) == ["s-c1"]
    (branch,) = build_trajectory("s", [first, second]).branches
    assert list(branch.token_ids) == [1, 2, 3, 4]


def test_of_several_choices_the_first_and_the_extended_one_are_trained() -> None:
    several = turn(0, [1], Said([2]), Said([3], index=1), Said([4], index=2))
    entries = build_trajectory("s", [several, turn(1, [1, 4, 5], Said([6]))]).left_out
    assert entries == (LeftOut("s-c0", 1, Reason.EXTRA_CHOICE, 1),)


def test_a_reply_cut_by_length_and_asked_again_is_discarded() -> None:
    first, again = turn(0, [1], Said([2], finish=LENGTH)), turn(1, [1], Said([3]))
    onward = turn(2, [1, 3, 4], Said([5]))
    assert left_out(first, again, onward) == [("s-c0", Reason.DISCARDED_AT_LENGTH)]
    assert trained(first, again, onward) == ["s-c1", "s-c2"]


def test_siblings_cut_by_length_of_which_none_goes_on_all_stand() -> None:
    siblings = [turn(place, [1], Said([2 + place], finish=LENGTH)) for place in range(3)]
    assert trained(*siblings) == ["s-c0", "s-c1", "s-c2"]


@pytest.mark.parametrize("caveat", list(Caveat))
def test_tokens_that_were_not_sampled_from_what_the_ids_say_are_not_trained(caveat: Caveat) -> None:
    plain = turn(0, [1], Said([2]))
    doubtful = replace(plain, call=replace(plain.call, caveat=caveat))
    assert left_out(doubtful) == [("s-c0", Reason(caveat.value))]


def test_a_reply_cut_by_length_at_the_end_is_trained() -> None:
    assert trained(turn(0, [1], Said([2], finish=LENGTH))) == ["s-c0"]


def test_a_reply_cut_by_length_that_comes_back_in_other_tokens_is_trained() -> None:
    """The template told it again without its reasoning: a new branch, and both turns stand."""
    first, second = turn(0, [1], Said([8, 2], finish=LENGTH)), turn(1, [1, 2, 3], Said([4]))
    assert trained(first, second) == ["s-c0", "s-c1"]


def test_choices_cut_by_length_do_not_discard_each_other() -> None:
    call = turn(0, [1], Said([2], finish=LENGTH), Said([3], index=1, finish=LENGTH))
    assert left_out(call) == [("s-c0", Reason.EXTRA_CHOICE)]
