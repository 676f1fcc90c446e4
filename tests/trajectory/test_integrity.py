"""What is wrong or doubtful about recorded calls: every code has an example, and sound calls have none."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given

from polarproxy.model import CallKind, CallStatus, CapturedCall, Caveat, FinishReason, LogprobsMode, TokenIds, Usage
from polarproxy.trajectory.branches import Trajectory, build_trajectory
from polarproxy.trajectory.integrity import Code, Finding, Severity, check_calls
from polarproxy.trajectory.integrity_session import SessionIntegrity, check_session
from polarproxy.trajectory.kinds import Judged, Source, Verdict, judge
from polarproxy.trajectory.merging import stitch
from tests.trajectory.build import SAMPLING, Said, turn
from tests.trajectory.sessions import sessions

RAW = LogprobsMode.RAW


def call(*said: Said, prompt: Sequence[int] = (1, 2), ordinal: int = 0, **fields: Any) -> CapturedCall:
    captured = turn(ordinal, prompt, *(said or (Said([3, 9]),)))
    return replace(captured, call=replace(captured.call, **fields))


def sampled(**sampling: Any) -> CapturedCall:
    return call(sampling=replace(SAMPLING, **sampling))


def codes(*calls: CapturedCall) -> list[Code]:
    return [finding.code for finding in check_calls(calls)]


def session(*calls: CapturedCall, trajectory: Trajectory | None = None) -> SessionIntegrity:
    judged = judge(calls)
    return check_session(judged, trajectory or build_trajectory("s", judged.calls))


SOUND = [
    pytest.param(call(), id="plain"),
    pytest.param(call(usage=Usage(2, 2)), id="counts that agree"),
    pytest.param(call(Said([3]), Said([4, 5], index=1), usage=Usage(2, 3)), id="counts of all choices"),
    pytest.param(call(Said([3]), usage=Usage(2, 9), status=CallStatus.ABORTED), id="counts of a reply that was cut"),
    pytest.param(call(Said([], None), usage=Usage(2, 9), status=CallStatus.ENGINE_ERROR), id="nothing came"),
    pytest.param(call(usage=Usage(7, 2), caveat=Caveat.MEDIA), id="counts with pictures"),
    pytest.param(call(Said([3], [0.0])), id="a sure token"),
    pytest.param(sampled(temperature=0.7), id="another temperature, processed"),
    pytest.param(sampled(top_k=-1, repetition_penalty=1.0, presence_penalty=0.0, min_p=0.0), id="defaults in words"),
]
FOUND = {
    Code.NO_LOGPROBS: call(Said([3], None)),
    Code.LOGPROB_COUNT: call(Said([3, 4], [-1.0])),
    Code.MISSING_LOGPROB: call(Said([3], [None])),
    Code.SENTINEL_LOGPROB: call(Said([3], [-9999.0])),
    Code.INFINITE_LOGPROB: call(Said([3], [float("-inf")])),
    Code.POSITIVE_LOGPROB: call(Said([3], [0.25])),
    Code.USAGE_COMPLETION: call(usage=Usage(2, 3)),
    Code.USAGE_PROMPT: call(usage=Usage(3, 2)),
    Code.NO_TOKEN_IDS: call(Said([], None)),
    Code.LOGPROBS_MODE_UNKNOWN: sampled(logprobs_mode=LogprobsMode.UNKNOWN),
    Code.LOGPROBS_MODE_RAW: sampled(logprobs_mode=RAW),
    Code.TEMPERATURE_UNKNOWN: sampled(temperature=None),
    Code.TEMPERATURE_0: sampled(temperature=0.0),
    Code.TOP_P_BELOW_1: sampled(top_p=0.9),
    Code.TOP_K_SET: sampled(top_k=20),
    Code.MIN_P_SET: sampled(min_p=0.1),
    Code.CONSTRAINED: call(request_body=b'{"tool_choice":"required"}'),
    Code.PENALTIES: sampled(presence_penalty=0.5),
    Code.WEIGHTS_CHANGED: call(policy_version_min=1, policy_version_max=2),
    Code.NO_STOP_ID: call(Said([5, 3, 5])),
}


@pytest.mark.parametrize("sound", SOUND)
def test_nothing_is_found_where_nothing_is_wrong(sound: CapturedCall) -> None:
    assert codes(sound) == []


@pytest.mark.parametrize(("code", "wrong"), FOUND.items())
def test_what_is_wrong_with_a_call_is_found(code: Code, wrong: CapturedCall) -> None:
    assert codes(wrong) == [code]


def test_raw_logprobs_at_a_temperature_are_not_those_of_what_was_sampled() -> None:
    found = codes(sampled(logprobs_mode=RAW, temperature=0.7))
    assert found == [Code.LOGPROBS_MODE_RAW, Code.RAW_AT_TEMPERATURE]


@pytest.mark.parametrize("penalty", [{"frequency_penalty": -0.5}, {"repetition_penalty": 1.1}])
def test_every_penalty_counts(penalty: dict[str, float]) -> None:
    assert codes(sampled(**penalty)) == [Code.PENALTIES]


def test_an_id_that_sampling_went_on_after_is_no_stop_id() -> None:
    """The engine cut the stop token off: the last id is one of the text, which stands inside another reply."""
    cut = call(Said([3, 4]))
    assert codes(cut, call(Said([4, 9]), ordinal=1)) == [Code.NO_STOP_ID]
    assert codes(cut, call(Said([7, 4]), ordinal=1)) == []


@pytest.mark.parametrize(
    "other",
    [
        Said([3, 4], finish=FinishReason.LENGTH),
        Said([3, 4], finish=None),
    ],
    ids=["cut by length", "not finished"],
)
def test_a_reply_that_did_not_end_by_itself_ends_anywhere(other: Said) -> None:
    assert codes(call(other), call(Said([4, 9]), ordinal=1)) == []


def test_a_stop_string_ends_a_reply_anywhere() -> None:
    stopped = call(Said([3, 4]))
    (completion,) = stopped.call.completions
    stopped = replace(stopped, call=replace(stopped.call, completions=(replace(completion, stop_reason="\n"),)))
    assert codes(stopped, call(Said([4, 9]), ordinal=1)) == []


def test_a_call_that_ignores_stop_ids_says_nothing_of_them() -> None:
    """`ignore_eos`: the stop id 9 stands inside, and only the limit ended it."""
    ignoring = call(Said([5, 9, 5, 5], finish=FinishReason.LENGTH), ordinal=1)
    assert codes(call(Said([3, 9])), ignoring) == []
    (completion,) = ignoring.call.completions
    stopped = replace(completion, finish_reason=FinishReason.STOP, stop_reason="\n")
    assert codes(call(Said([3, 9])), replace(ignoring, call=replace(ignoring.call, completions=(stopped,)))) == []


def test_a_reply_with_a_call_that_was_cut_at_its_limit_ends_anywhere_and_says_nothing() -> None:
    """vLLM calls its end `tool_calls` all the same; with `ignore_eos` the stop id 9 stands inside."""
    limit = replace(SAMPLING, max_tokens=4)
    full = call(Said([5, 9, 5, 5], finish=FinishReason.TOOL_CALLS), ordinal=1, sampling=limit)
    assert codes(call(Said([3, 9])), full) == []
    assert codes(call(Said([3, 5, 9])), full) == []
    # One that ended before its limit ended by itself.
    assert codes(call(Said([3, 5, 9])), call(Said([7, 5]), ordinal=1, sampling=limit)) == [Code.NO_STOP_ID]


def test_models_have_stop_ids_of_their_own() -> None:
    assert codes(call(Said([3, 4])), call(Said([4, 9]), ordinal=1, served_model="other")) == []


def test_a_finding_says_what_and_where() -> None:
    (found,) = check_calls([call(Said([3, 4, 9], [-1.0, None, None]))])
    assert found == Finding(Code.MISSING_LOGPROB, "s-c0", "2 of 3, the first at token 1", 0)
    assert found.severity is Severity.ERROR


def test_a_session_is_summed_up() -> None:
    first = call(Said([3, 9]), policy_version_min=1, policy_version_max=1)
    second = call(Said([4, 9]), prompt=[1, 2, 3, 9, 5], ordinal=1, policy_version_min=3, policy_version_max=4)
    lost = replace(call(Said([6, 9]), prompt=[7], ordinal=2), delivered=False)
    found = session(first, second, lost)
    assert (found.calls, found.rows, found.captured_tokens, found.trained_tokens) == (3, 1, 6, 4)
    assert found.left_out == {"undelivered": 1}
    assert found.kinds == {"main": 3}
    assert found.versions is not None
    assert (found.versions.first, found.versions.last, found.versions.turns) == (1, 4, 2)
    assert (found.versions.changed_in_mid_call, found.versions.lag(6)) == (1, 5)
    assert found.counts(Severity.WARNING) == {"mixed_versions": 1, "weights_changed": 1}
    assert found.counts(Severity.ERROR) == {}
    assert found.sound


def test_a_row_of_several_models_is_told() -> None:
    first = call(Said([3, 9]))
    on = call(Said([4, 9]), prompt=[1, 2, 3, 9, 5], ordinal=1, served_model="other")
    (found,) = session(first, on).findings
    assert (found.code, found.call_id, found.detail) == (Code.MIXED_MODELS, "s-c1", "row 0 holds tokens of other, tiny")
    assert session(first, replace(on, call=replace(on.call, served_model=None))).findings == ()
    # Nobody trains what the other one said.
    assert session(first, replace(on, delivered=False)).findings == ()


def test_a_session_without_anything_trained_has_no_versions() -> None:
    found = session(replace(call(), delivered=False))
    assert (found.versions, found.coverage) == (None, 0.0)


def test_a_row_with_an_error_in_what_it_trains_is_refused_and_no_other() -> None:
    wrong = call(Said([3, 9]), usage=Usage(2, 5))
    child = call(Said([4, 9]), prompt=[1, 2, 3, 9, 5], ordinal=1)
    other = call(Said([4, 9]), prompt=[1, 2, 3, 9, 6], ordinal=2)
    judged = judge([wrong, child, other])
    trajectory = build_trajectory("s", judged.calls)
    found = check_session(judged, trajectory)
    assert not found.sound
    # Where it is context only, the second row trains nothing that is in doubt.
    assert [found.refused(branch) for branch in trajectory.branches] == [(Code.USAGE_COMPLETION,), ()]


def test_a_bad_choice_refuses_its_own_row_alone() -> None:
    first = call(Said([3, 9]), Said([7, 9], [-9999.0, -1.0], index=1))
    judged = judge([first, call(Said([4, 9]), prompt=[1, 2, 3, 9, 5], ordinal=1)])
    trajectory = build_trajectory("s", judged.calls)
    found = check_session(judged, trajectory)
    assert [(finding.code, finding.choice) for finding in found.errors] == [(Code.SENTINEL_LOGPROB, 1)]
    assert [found.refused(branch) for branch in trajectory.branches] == [()]


def test_a_row_that_holds_other_tokens_is_found() -> None:
    """Planted: no rule makes such a branch."""
    trajectory = build_trajectory("s", [call(Said([3, 9]))])
    (branch,) = trajectory.branches
    for ids, count in (([1, 2, 3, 8], 1), ([1, 7, 3, 9], 1), ([1, 7, 3, 8], 2)):
        planted = replace(branch, token_ids=TokenIds.of(ids))
        found = session(call(Said([3, 9])), trajectory=replace(trajectory, branches=(planted,)))
        assert found.counts(Severity.ERROR) == {"prefix_broken": count}


def test_a_token_that_is_trained_twice_is_found() -> None:
    trajectory = build_trajectory("s", [call()])
    (branch,) = trajectory.branches
    twice = replace(trajectory, branches=(branch, replace(branch, index=1)))
    assert session(call(), trajectory=twice).counts(Severity.ERROR) == {"trained_twice": 1}


def test_a_stitched_row_is_doubtful_where_it_is_not_faithful() -> None:
    calls = [call(Said([8, 3, 9])), call(Said([4, 9]), prompt=[1, 2, 3, 9, 5], ordinal=1)]
    trajectory = build_trajectory("s", calls, stitch)
    assert not trajectory.branches[0].faithful
    found = session(*calls, trajectory=trajectory)
    assert found.counts(Severity.WARNING) == {"unfaithful": 1}
    assert found.sound


def test_an_unknown_kind_is_reported() -> None:
    captured = replace(call(), kind=CallKind.UNKNOWN)
    verdict = Verdict(CallKind.UNKNOWN, Source.SHAPE, "it stands alone")
    judged = Judged((captured,), {"s-c0": verdict}, ())
    found = check_session(judged, build_trajectory("s", judged.calls))
    assert [(finding.code, finding.detail) for finding in found.findings] == [(Code.KIND_UNKNOWN, "it stands alone")]


@given(sessions())
def test_no_row_of_any_session_breaks_its_prefix_or_trains_a_bad_number(calls: list[CapturedCall]) -> None:
    judged = judge(calls)
    trajectory = build_trajectory("s", judged.calls)
    found = check_session(judged, trajectory)
    assert not {Code.PREFIX_BROKEN, Code.TRAINED_TWICE, Code.UNFAITHFUL} & {f.code for f in found.findings}
    bad = {Code.NO_LOGPROBS, Code.LOGPROB_COUNT, Code.MISSING_LOGPROB, Code.SENTINEL_LOGPROB, Code.INFINITE_LOGPROB}
    wrong = {(f.call_id, f.choice) for f in found.findings if f.code in bad | {Code.POSITIVE_LOGPROB}}
    trained = {
        (turn.node.captured.call.call_id, turn.node.completion.index)
        for branch in trajectory.branches
        for turn in branch.turns
        if turn.trained
    }
    assert not wrong & trained


def test_every_code_has_an_example_here() -> None:
    planted = {Code.PREFIX_BROKEN, Code.TRAINED_TWICE, Code.UNFAITHFUL, Code.KIND_UNKNOWN, Code.MIXED_VERSIONS}
    planted |= {Code.MIXED_MODELS}
    assert set(Code) == set(FOUND) | planted | {Code.RAW_AT_TEMPERATURE, Code.LINEAGE_DISAGREES}
