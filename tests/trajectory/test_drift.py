"""How a prompt differs from what it repeats: real examples of every class, in the ids of several tokenizers."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest

from polarproxy.model import CallKind, CapturedCall
from polarproxy.trajectory.drift import Drift, by_class, find_drifts
from polarproxy.trajectory.forest import build_forest
from polarproxy.trajectory.symptoms import TESTS, DriftClass
from tests.trajectory.build import Said, turn
from tests.trajectory.tongues import NAMES, TOY, Tongue, tongue

SYSTEM = "<|im_start|>system\nYou are a careful assistant that works in a repository of Python files.<|im_end|>\n"
ASK = "<|im_start|>user\nWhat is the weather in Paris today?<|im_end|>\n"
BEGIN = "<|im_start|>assistant\n"
END = "<|im_end|>"
MORE = "\n<|im_start|>user\nAnd what will it be like tomorrow?<|im_end|>\n" + BEGIN
ANSWER = "It is sunny in Paris, with a light wind from the west."
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"unit":"C", "city":"Paris"}}\n</tool_call>'
RESULT = "\n<|im_start|>user\n<tool_response>\nsunny, 21 degrees\n</tool_response><|im_end|>\n" + BEGIN


@dataclass(frozen=True)
class Example:
    """A prompt, the pieces in which the reply was sampled, and the next prompt."""

    drift: DriftClass
    prompt: str
    reply: Sequence[str]
    later: str


def after(reply: str, more: str = MORE, head: str = SYSTEM + ASK) -> str:
    """The next prompt, when the template tells the reply again like this."""
    return head + BEGIN + reply + more


FIRST = SYSTEM + ASK + BEGIN
EXAMPLES = {
    "a_word_in_other_tokens": Example(
        DriftClass.RETOKENIZED, FIRST, ["It is sunny in Pa", "ris, with a light wind.", END],
        after("It is sunny in Paris, with a light wind." + END),
    ),
    "a_constrained_choice_letter_by_letter": Example(
        DriftClass.RETOKENIZED, FIRST, ["n", "o", END], after("no" + END)
    ),
    "reasoning_is_dropped": Example(
        DriftClass.THINKING_STRIPPED, FIRST, ["<think>\nThe user wants the weather.\n</think>\n\n", ANSWER, END],
        after(ANSWER + END),
    ),
    "reasoning_that_says_the_answer_is_dropped": Example(
        DriftClass.THINKING_STRIPPED, FIRST, [f"<think>\nI could say: {ANSWER}\n</think>\n\n", ANSWER, END],
        after(ANSWER + END),
    ),
    "reasoning_is_replaced_by_an_empty_block": Example(
        DriftClass.THINKING_STRIPPED, FIRST, ["<think>\nThe user wants the weather.\n</think>\n\n", ANSWER, END],
        after("<think>\n\n</think>\n\n" + ANSWER + END),
    ),
    "reasoning_begun_by_the_generation_prompt_is_dropped": Example(
        DriftClass.THINKING_STRIPPED, FIRST + "<think>\n", ["The user wants the weather.\n</think>\n\n", ANSWER, END],
        after(ANSWER + END),
    ),
    "an_empty_block_of_the_generation_prompt_is_not_in_history": Example(
        DriftClass.EMPTY_THINK, FIRST + "<think>\n\n</think>\n\n", [ANSWER, END], after(ANSWER + END)
    ),
    "an_empty_block_is_in_history_only": Example(
        DriftClass.EMPTY_THINK, FIRST, [ANSWER, END], after("<think>\n\n</think>\n\n" + ANSWER + END)
    ),
    "a_newline_before_the_end_of_turn": Example(
        DriftClass.SEPARATOR, FIRST, [ANSWER, "\n", END], after(ANSWER + END)
    ),
    "arguments_with_other_spaces": Example(
        DriftClass.ARGUMENTS_RESERIALIZED, FIRST, [CALL, END],
        after(CALL.replace('"unit":"C", "city":"Paris"', '"unit": "C", "city": "Paris"') + END, RESULT),
    ),
    "arguments_in_another_order": Example(
        DriftClass.ARGUMENTS_RESERIALIZED, FIRST, [CALL, END],
        after(CALL.replace('"unit":"C", "city":"Paris"', '"city":"Paris", "unit":"C"') + END, RESULT),
    ),
    "arguments_with_escapes": Example(
        DriftClass.ARGUMENTS_RESERIALIZED, FIRST, [CALL.replace("Paris", "Zürich"), END],
        after(CALL.replace("Paris", "Z\\u00fcrich") + END, RESULT),
    ),
    "numbers_written_otherwise": Example(
        DriftClass.ARGUMENTS_RESERIALIZED, FIRST, [CALL.replace('"C"', "1e3"), END],
        after(CALL.replace('"C"', "1000.0") + END, RESULT),
    ),
    "a_hash_in_the_system_prompt": Example(
        DriftClass.NONCE, "<|im_start|>system\nbilling: cch=4f9a1; be helpful.<|im_end|>\n" + ASK + BEGIN, [ANSWER, END],
        after(ANSWER + END, head="<|im_start|>system\nbilling: cch=b07c3; be helpful.<|im_end|>\n" + ASK),
    ),
    "a_date_in_the_system_prompt": Example(
        DriftClass.NONCE, "<|im_start|>system\nToday is 2026-11-30.<|im_end|>\n" + ASK + BEGIN, [ANSWER, END],
        after(ANSWER + END, head="<|im_start|>system\nToday is 2026-12-01.<|im_end|>\n" + ASK),
    ),
    "another_system_prompt": Example(
        DriftClass.SYSTEM_CHANGED, FIRST, [ANSWER, END],
        after(ANSWER + END, head="<|im_start|>system\nYou are a pirate and talk like one.<|im_end|>\n" + ASK),
    ),
    "a_reply_cut_off_by_the_harness": Example(
        DriftClass.TRUNCATED, FIRST, [ANSWER, END], after("It is sunny in Paris," + END)
    ),
    "a_reply_rewritten_by_the_harness": Example(
        DriftClass.EDITED, FIRST, [ANSWER, END], after("It is raining in London, with a light wind from the west." + END)
    ),
}  # fmt: skip


def played(example: Example, speak: Tongue) -> list[CapturedCall]:
    first = turn(0, speak.encode(example.prompt), Said(speak.pieces(*example.reply)))
    return [first, turn(1, speak.encode(example.later), Said(speak.encode("Rain." + END)))]


def everything(calls: Sequence[CapturedCall], speak: Tongue) -> dict[int, bytes]:
    prompts = [captured.call.prompt_token_ids or () for captured in calls]
    return speak.texts(*prompts, *(c.token_ids for captured in calls for c in captured.call.completions))


def found(calls: Sequence[CapturedCall], texts: dict[int, bytes]) -> list[Drift]:
    return list(find_drifts(build_forest(calls), texts))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("example", EXAMPLES.values(), ids=EXAMPLES)
def test_a_difference_has_its_class(example: Example, name: str) -> None:
    speak = tongue(name)
    calls = played(example, speak)
    (drift,) = found(calls, everything(calls, speak))
    assert drift.drift_class is example.drift
    assert (drift.call_id, drift.earlier_call_id) == ("s-c1", "s-c0")
    assert_the_windows_are_where_they_differ(calls, drift)


def assert_the_windows_are_where_they_differ(calls: Sequence[CapturedCall], drift: Drift) -> None:
    here = list(calls[1].call.prompt_token_ids or ())
    there = [*(calls[0].call.prompt_token_ids or ()), *calls[0].call.completions[0].token_ids]
    assert here[: drift.position] == there[: drift.position]
    assert here[drift.position] != there[drift.position]
    for window, ids in ((drift.here, here), (drift.there, there)):
        start = drift.position - len(window.before)
        shown = [*window.before, *window.changed, *window.after]
        assert shown == ids[start : start + len(shown)]


def test_every_class_has_a_real_example() -> None:
    elsewhere = {DriftClass.COMPACTED, DriftClass.TOOLS_CHANGED, DriftClass.UNEXPLAINED}
    assert {example.drift for example in EXAMPLES.values()} | elsewhere == set(DriftClass)
    assert [name for name, _ in TESTS] == [name for name in DriftClass if name is not DriftClass.UNEXPLAINED]


def sampled_only(calls: Sequence[CapturedCall], speak: Tongue) -> dict[int, bytes]:
    """What a store knows without a tokenizer: the spelling of every token that was sampled."""
    return speak.texts(*(c.token_ids for captured in calls for c in captured.call.completions))


TOLD_BY_IDS = {
    DriftClass.THINKING_STRIPPED,
    DriftClass.EMPTY_THINK,
    DriftClass.TRUNCATED,
    DriftClass.SYSTEM_CHANGED,
    DriftClass.UNEXPLAINED,
}


@pytest.mark.parametrize("example", EXAMPLES.values(), ids=EXAMPLES)
def test_without_the_texts_nothing_is_guessed(example: Example) -> None:
    """A class is the right one, or the one that only says where, or none."""
    calls = played(example, TOY)
    for texts in ({}, sampled_only(calls, TOY)):
        (drift,) = found(calls, texts)
        general = {DriftClass.UNEXPLAINED}
        if example.drift is DriftClass.NONCE:
            general.add(DriftClass.SYSTEM_CHANGED)
        if not texts:
            general.add(DriftClass.TRUNCATED)
        assert drift.drift_class in {example.drift, *general}


def test_stripped_reasoning_is_known_by_what_was_sampled() -> None:
    calls = played(EXAMPLES["reasoning_is_dropped"], TOY)
    (drift,) = found(calls, sampled_only(calls, TOY))
    assert drift.drift_class is DriftClass.THINKING_STRIPPED


@pytest.mark.parametrize("name", NAMES)
def test_half_a_character_comes_back_as_a_replacement_character(name: str) -> None:
    """The limit cut an emoji in two; its first bytes are no text, and the client got U+FFFD."""
    speak = tongue(name)
    half = next(ids[:cut] for ids in [speak.encode("🫠")] for cut in (1, 2, 3) if len(ids) > cut)
    first = turn(0, speak.encode(FIRST), Said([*speak.encode("Hurray for Paris and its long avenues! "), *half]))
    told = "".join(("Hurray for Paris and its long avenues! ", "�", END))
    calls = [first, turn(1, speak.encode(after(told)), Said(speak.encode("Rain." + END)))]
    (drift,) = found(calls, everything(calls, speak))
    assert drift.drift_class is DriftClass.RETOKENIZED


def test_other_tools_are_told_by_their_digest() -> None:
    tools = "<|im_start|>system\nTools: {}<|im_end|>\n"
    first = turn(0, TOY.encode(tools.format("read") + ASK + BEGIN), Said(TOY.pieces(ANSWER, END)))
    later = turn(1, TOY.encode(after(ANSWER + END, head=tools.format("read, write") + ASK)), Said(TOY.encode("Rain.")))
    calls = [
        replace(captured, call=replace(captured.call, tools_digest=digest))
        for captured, digest in ((first, "one"), (later, "two"))
    ]
    assert [drift.drift_class for drift in found(calls, {})] == [DriftClass.TOOLS_CHANGED]


SUMMARY = "The user asked for the weather in Paris and was told that it is sunny there, with a light wind."


def test_a_summary_in_the_place_of_the_history_is_a_compaction() -> None:
    calls = [
        turn(0, TOY.encode(FIRST), Said(TOY.pieces(ANSWER, END))),
        turn(1, TOY.encode(after(ANSWER + END, MORE)), Said(TOY.pieces("It will rain all day long.", END))),
        turn(
            2,
            TOY.encode("<|im_start|>system\nSummarise.<|im_end|>\n" + ASK + BEGIN),
            Said(TOY.pieces(SUMMARY, END)),
            kind=CallKind.COMPACTION,
        ),
        turn(
            3, TOY.encode(f"{SYSTEM}<|im_start|>user\nSo far: {SUMMARY}<|im_end|>{MORE}"), Said(TOY.pieces("Yes.", END))
        ),
    ]
    (drift,) = found(calls, everything(calls, TOY))
    assert (drift.drift_class, drift.call_id, drift.earlier_call_id) == (DriftClass.COMPACTED, "s-c3", "s-c2")


TASK = "Look into every file below src and say which of them still open their sockets without a timeout"
NO_DRIFT = {
    "a_conversation_that_goes_on": [
        (FIRST, ANSWER), (after(ANSWER + END), "It will rain."), (after(ANSWER + END) + "It will rain." + END + MORE, "Yes."),
    ],
    "another_question_after_the_same_history": [
        (FIRST, ANSWER), (after(ANSWER + END), "It will rain."),
        (after(ANSWER + END, "\n<|im_start|>user\nAnd in London?<|im_end|>\n" + BEGIN), "Fog."),
    ],
    "the_same_question_again": [(FIRST, ANSWER), (FIRST, "It is sunny."), (FIRST, ANSWER)],
    "a_reply_that_was_thrown_away": [
        (FIRST, "?!"), (SYSTEM + ASK + "<|im_start|>user\nAnswer in words.<|im_end|>\n" + BEGIN, ANSWER)
    ],
    "agents_that_share_their_head": [
        (FIRST, ANSWER), (SYSTEM + "<|im_start|>user\nCount the files.<|im_end|>\n" + BEGIN, "There are nine."),
    ],
    "a_sub_agent_whose_task_was_sampled": [
        (FIRST, f'<tool_call>\n{{"name": "task", "arguments": {{"prompt": "{TASK}"}}}}\n</tool_call>'),
        (f"{SYSTEM}<|im_start|>user\n{TASK}<|im_end|>\n{BEGIN}", "None of them does."),
    ],
}  # fmt: skip


def test_a_reply_without_ids_that_says_what_was_said_before_is_no_drift() -> None:
    """The call in between is not in the forest; that its words are those of an earlier reply makes them no echo of it."""
    prompt = after(ANSWER + END) + ANSWER + END + MORE
    calls = [
        turn(0, TOY.encode(FIRST), Said(TOY.encode(ANSWER + END))),
        turn(1, None, Said([], None)),
        turn(2, TOY.encode(prompt), Said(TOY.encode("Rain." + END))),
    ]
    assert found(calls, {}) == []


def test_of_agents_that_end_their_replies_alike_the_one_that_is_told_again_is_found() -> None:
    """The head of the second agent's next prompt has more in common with the other agent's, and the end of its reply too."""
    heads = [
        f"<|im_start|>system\nAgent. Tools: {tools}.<|im_end|>\n" for tools in ("read, write", "read", "read, wander")
    ]
    asks = [f"<|im_start|>user\nTask {name}.<|im_end|>\n" for name in ("one", "two")]
    replies = [f"Task {name} is done now, and all of its tests are green." for name in ("one", "two")]
    calls = [
        turn(0, TOY.encode(heads[0] + asks[0] + BEGIN), Said(TOY.encode(replies[0] + END))),
        turn(1, TOY.encode(heads[1] + asks[1] + BEGIN), Said(TOY.encode(replies[1] + END))),
        turn(2, TOY.encode(heads[2] + asks[1] + BEGIN + replies[1] + END + MORE), Said(TOY.encode("Rain." + END))),
    ]
    (drift,) = found(calls, everything(calls, TOY))
    assert (drift.earlier_call_id, drift.drift_class) == ("s-c1", DriftClass.SYSTEM_CHANGED)


def test_two_ways_on_from_a_reply_without_glue_are_no_drift() -> None:
    """A client of the completions API appends to the text; one call asks for more of it, another after words of its own."""
    calls = [turn(0, [1], Said([2])), turn(1, [1, 2], Said([3, 4])), turn(2, [1, 2, 5, 6], Said([7]))]
    assert found(calls, {}) == []


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("calls", NO_DRIFT.values(), ids=NO_DRIFT)
def test_what_repeats_exactly_or_not_at_all_is_no_drift(calls: Sequence[tuple[str, str]], name: str) -> None:
    speak = tongue(name)
    made = [turn(at, speak.encode(prompt), Said(speak.pieces(reply, END))) for at, (prompt, reply) in enumerate(calls)]
    assert found(made, everything(made, speak)) == []


def test_a_side_call_that_tells_the_conversation_again_is_no_drift() -> None:
    first, later = played(EXAMPLES["another_system_prompt"], TOY)
    assert found([first, replace(later, kind=CallKind.TITLE)], {}) == []
    assert len(found([first, later], {})) == 1


def test_of_several_differences_the_first_counts_and_later_turns_of_a_fork_are_clean() -> None:
    first, second = played(EXAMPLES["reasoning_is_dropped"], TOY)
    prompt = EXAMPLES["reasoning_is_dropped"].later + "Rain." + END + MORE
    calls = [first, second, turn(2, TOY.encode(prompt), Said(TOY.pieces("Yes.", END)))]
    assert [drift.call_id for drift in found(calls, everything(calls, TOY))] == ["s-c1"]


def test_drifts_are_counted_by_class() -> None:
    calls = played(EXAMPLES["reasoning_is_dropped"], TOY)
    drifts = found(calls, everything(calls, TOY))
    assert by_class([*drifts, *drifts]) == {"thinking_stripped": 2}
    assert by_class([]) == {}


def test_of_several_choices_the_call_drifts_once() -> None:
    first, later = played(EXAMPLES["a_reply_cut_off_by_the_harness"], TOY)
    several = replace(later.call, completions=(*later.call.completions, replace(later.call.completions[0], index=1)))
    assert len(found([first, replace(later, call=several)], {})) == 1
