"""Sessions at random: turns, branches, repeats, several choices, broken calls, agents and tries that headers name; with so
few tokens that prefixes collide."""

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import strategies as st

from polarproxy.model import CallKind, CallStatus, CapturedCall, FinishReason
from polarproxy.trajectory.eligibility import SENTINEL
from polarproxy.trajectory.repeats import RETRY_COUNT
from tests.trajectory.build import Said, call, logprob

MOST_CALLS = 8
_TOKENS = st.integers(0, 2)
_FEW = st.lists(_TOKENS, max_size=3)
_STATUS = st.sampled_from([CallStatus.COMPLETED] * 6 + list(CallStatus))
_FINISH = st.sampled_from([FinishReason.STOP] * 4 + [*FinishReason, None])
_KIND = st.sampled_from([CallKind.MAIN] * 6 + list(CallKind))
AGENT = "x-session-id"
"""The header by which the agents of these sessions are told apart."""
_HEADERS = st.sampled_from(
    [()] * 6
    + [
        ((RETRY_COUNT, "0"),),
        ((RETRY_COUNT, "1"),),
        ((AGENT, "a"),),
        ((AGENT, "b"),),
        ((AGENT, "a"), (RETRY_COUNT, "1")),
    ]
)
_BROKEN = st.sampled_from(["none", "short", "nan", "sentinel", "infinite"])


def _rarely(draw: st.DrawFn) -> bool:
    return draw(st.integers(0, 9)) == 9


def _logprobs(draw: st.DrawFn, ordinal: int, index: int, size: int) -> Sequence[float | None] | None:
    values: list[float | None] = [logprob(ordinal, index, place) for place in range(size)]
    if not _rarely(draw):
        return values
    how = draw(_BROKEN)
    if how == "none":
        return None
    if how == "short" or not size:
        return values[:-1]
    values[draw(st.integers(0, size - 1))] = {"nan": None, "sentinel": SENTINEL - 999, "infinite": -float("inf")}[how]
    return values


def _said(draw: st.DrawFn, ordinal: int, index: int) -> Said:
    ids = draw(_FEW)
    return Said(ids, _logprobs(draw, ordinal, index, len(ids)), index, draw(_FINISH))


@st.composite
def sessions(draw: st.DrawFn) -> list[CapturedCall]:
    """The calls of one session in order of arrival, ordinals with gaps. Prompts are a known sequence (nothing, a prompt, a
    prompt and what was sampled on it) and some tokens more, so that conversations continue, branch, repeat and interleave.
    """
    known: list[list[int]] = [[]]
    calls: list[CapturedCall] = []
    ordinal = -1
    for _ in range(draw(st.integers(0, MOST_CALLS))):
        ordinal += draw(st.integers(1, 2))
        prompt = draw(st.sampled_from(known)) + draw(_FEW)
        status = draw(_STATUS)
        choices = 0 if status is CallStatus.REJECTED else draw(st.sampled_from([1, 1, 1, 2, 3]))
        said = [_said(draw, ordinal, index) for index in range(choices)]
        version = draw(st.integers(0, 2))
        shown = None if _rarely(draw) else prompt
        made = call(ordinal, shown, *said, status=status, policy_versions=(version, version))
        made = replace(made, headers=draw(_HEADERS))
        calls.append(CapturedCall(made, draw(st.sampled_from([True, True, True, False])), draw(_KIND)))
        known += [prompt, *(prompt + list(one.ids) for one in said)]
    return calls
