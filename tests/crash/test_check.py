"""The comparison of ledger and store notices every kind of difference."""

from __future__ import annotations

from dataclasses import replace

import pytest

from polarproxy.model import CallStatus, CapturedCall, Logprobs, TokenIds
from tests.crash.check import compare
from tests.crash.client import Seen
from tests.crash.sampled import sampled
from tests.store.samples import a_call, a_completion

PROMPT = (1, 2, 3)


def seen(serial: int) -> Seen:
    return Seen(serial, "s1", PROMPT, streamed=False)


def stored(serial: int, ordinal: int) -> CapturedCall:
    right = sampled(serial)
    completion = a_completion(right.token_ids, logprobs=Logprobs.of(right.logprobs))
    return CapturedCall(a_call(f"c{serial}", ordinal, PROMPT, completions=(completion,)))


def changed(captured: CapturedCall, **fields: object) -> CapturedCall:
    return replace(captured, call=replace(captured.call, **fields))  # type: ignore[arg-type]


ONE, TWO = stored(1, 0), stored(2, 1)
OTHER = sampled(3)
SHORT = a_completion(sampled(2).token_ids[:-1], logprobs=Logprobs.of(sampled(2).logprobs[:-1]))
VALUES = replace(ONE.call.completions[0], logprobs=Logprobs.of([-0.5] * len(sampled(1).token_ids)))


def test_what_is_as_it_was_seen_is_right() -> None:
    assert list(compare([seen(1), seen(2)], [TWO, ONE])) == []
    # Nobody saw its end: it may be there, and whole or cut.
    cut = changed(TWO, status=CallStatus.ABORTED, completions=(SHORT,))
    assert list(compare([seen(1)], [ONE, TWO])) == list(compare([seen(1)], [ONE, cut])) == []


@pytest.mark.parametrize(
    ("calls", "what"),
    [
        ([ONE], "lost"),
        ([ONE, TWO, TWO], "stored 2 times"),
        ([ONE, changed(TWO, session_id="s2")], "stored in session s2"),
        ([ONE, changed(TWO, status=CallStatus.ABORTED)], "stored as aborted"),
        ([ONE, changed(TWO, streamed=True)], "streamed=True"),
        ([ONE, changed(TWO, prompt_token_ids=TokenIds.of([1, 2]))], "other prompt ids"),
        ([ONE, changed(TWO, prompt_token_ids=None)], "other prompt ids"),
        ([ONE, changed(TWO, completions=(SHORT,))], "other token ids"),
        ([changed(ONE, completions=(VALUES,)), TWO], "other logprobs"),
        ([stored(1, 2), TWO], "stands at 1"),
        ([ONE, TWO, stored(3, 2), stored(3, 3)], "stored 2 times"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_every_difference_is_noticed(calls: list[CapturedCall], what: str) -> None:
    assert any(what in str(wrong) for wrong in compare([seen(1), seen(2)], calls))
