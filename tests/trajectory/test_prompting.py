"""What became of exact prompts, counted by session and added up."""

from dataclasses import replace

from polarproxy.model import CapturedCall, Continued, Prompting, PromptOutcome
from polarproxy.trajectory.prompting import PromptCount, count_prompts
from tests.trajectory.build import Said, turn


def with_prompt(captured: CapturedCall, prompting: Prompting | None) -> CapturedCall:
    return replace(captured, call=replace(captured.call, prompting=prompting))


def exact(call: str, choice: int = 0) -> Prompting:
    return Prompting(PromptOutcome.EXACT, Continued(call, choice, 2))


def fallback(reason: str) -> Prompting:
    return Prompting(PromptOutcome.FALLBACK, Continued("s-c0", 0, 2), reason)


CALLS = [
    with_prompt(turn(0, [1], Said([2, 3, 4]), Said([5], index=1)), Prompting(PromptOutcome.FIRST)),
    with_prompt(turn(1, [1, 2], Said([6])), exact("s-c0")),
    # The same turn is gone on from twice.
    with_prompt(turn(2, [1, 2], Said([6, 6])), exact("s-c0")),
    with_prompt(turn(3, [1, 5], Said([7])), exact("s-c0", 1)),
    with_prompt(turn(4, [9], Said([8])), fallback("media")),
    with_prompt(turn(5, [9], Said([8])), fallback("media")),
    with_prompt(turn(6, [9], Said([8])), fallback("too_long")),
    with_prompt(turn(7, [9], Said([8])), Prompting(PromptOutcome.FAULT, Continued("s-c2", 0, 2), "it used another")),
    with_prompt(turn(8, [9], Said([8])), None),
    # Pruned since, or another session's.
    with_prompt(turn(9, [9], Said([8])), exact("gone")),
]


def test_each_call_of_exact_mode_is_counted_once() -> None:
    count = count_prompts(CALLS)
    assert (count.first, count.exact, count.faults) == (1, 4, 1)
    assert dict(count.fallbacks) == {"media": 2, "too_long": 1}
    assert count.calls == len(CALLS) - 1


def test_a_turn_that_was_gone_on_from_is_saved_once() -> None:
    assert count_prompts(CALLS).saved_tokens == 3 + 1


def test_counts_of_sessions_add_up() -> None:
    total = PromptCount()
    for part in (CALLS[:4], CALLS[4:]):
        total.add(count_prompts(part))
    whole = count_prompts(CALLS)
    assert (total, total.calls) == (whole, whole.calls)


def test_template_mode_counts_nothing() -> None:
    assert count_prompts([turn(0, [1], Said([2]))]).calls == 0
