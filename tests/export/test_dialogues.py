"""Branches as dialogues: what the model said is found in tokens and requests, in every dialect, and nothing else is its."""

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polarproxy.cli.conversation import read_request
from polarproxy.export.format import Reading
from polarproxy.export.texts.dialogues import Dialogue, Dialogues, Unread
from polarproxy.model import Dialect, FinishReason
from polarproxy.trajectory.rebuilt import rebuild
from polarproxy.wire.neutral.request import Message, Part, Text, Thinking, ToolResult, ToolUse
from tests.export.talk import TEXTS, TOOL, Talk

READING = Reading(read_request, lambda _model: TEXTS)
SPOKEN = [dialect for dialect in Dialect if dialect is not Dialect.COMPLETIONS]


def read(talk: Talk, reading: Reading = READING) -> list[Dialogue | Unread]:
    rebuilt = rebuild(talk.session_id, talk.calls)
    dialogues = Dialogues(rebuilt.forest, reading)
    return [dialogues.of(branch) for branch in rebuilt.trajectory.branches]


def only(talk: Talk) -> Dialogue:
    (found,) = read(talk)
    assert isinstance(found, Dialogue)
    return found


def sampled(dialogue: Dialogue) -> list[tuple[int, tuple[Part, ...]]]:
    """Which call each sampled line is of, and what it says."""
    return [
        (line.turn.node.captured.call.ordinal, line.message.parts) for line in dialogue.lines if line.turn is not None
    ]


def worked(dialect: Dialect, arguments: str) -> Talk:
    talk = Talk(dialect)
    talk.say("system", "Be good.")
    talk.say("user", "How many?")
    talk.ask(Text("I look."), ToolUse("t1", "bash", arguments))
    talk.say("tool", ToolResult("t1", (Text("3 files"),), name="bash" if dialect is Dialect.GEMINI else None))
    talk.ask(Text("Three."))
    return talk


@pytest.mark.parametrize("dialect", SPOKEN)
def test_every_dialect_tells_the_same_dialogue(dialect: Dialect) -> None:
    arguments = '{"c":  "ls \\u00e9", "a": 1.0, "z": {}}'
    dialogue = only(worked(dialect, arguments))
    assert [line.message.role for line in dialogue.lines] == ["system", "user", "assistant", "tool", "assistant"]
    (first, said), (second, last) = sampled(dialogue)
    assert (first, second) == (0, 1)
    uses = [part for part in said if isinstance(part, ToolUse)]
    assert [(use.name, use.arguments) for use in uses] == [("bash", arguments)]
    assert [part.text for part in said if isinstance(part, Text)] == ["I look."]
    assert last == (Text("Three."),)
    assert dialogue.tools[0].name == TOOL.name
    assert [message.role for message in dialogue.opening] == ["system", "user"]


def test_completions_are_a_prompt_and_what_was_written() -> None:
    talk = Talk(Dialect.COMPLETIONS, tools=())
    talk.say("user", "Once upon")
    talk.ask(Text(" a <tool_call>time</think>"))
    dialogue = only(talk)
    assert [line.message for line in dialogue.lines] == [
        Message("user", (Text("Once upon"),)),
        Message("assistant", (Text(" a <tool_call>time</think>"),)),
    ]


_WORDS = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="<>|[]\x00"), min_size=1, max_size=8
).filter(lambda text: text == text.strip())
_ARGUMENTS = st.dictionaries(_WORDS, st.integers() | _WORDS | st.lists(st.booleans(), max_size=2), max_size=3)


@st.composite
def talks(draw: st.DrawFn) -> tuple[Talk, list[tuple[Part, ...]]]:
    """A session in one dialect, and what the model said in each of its turns."""
    talk = Talk(draw(st.sampled_from(SPOKEN)))
    talk.say("user", draw(_WORDS))
    said: list[tuple[Part, ...]] = []
    for turn in range(draw(st.integers(1, 3))):
        uses = [
            ToolUse(
                f"t{turn}_{index}",
                "bash",
                json.dumps(given, indent=draw(st.sampled_from([None, 1])), ensure_ascii=draw(st.booleans())),
            )
            for index, given in enumerate(draw(st.lists(_ARGUMENTS, max_size=2)))
        ]
        parts: tuple[Part, ...] = (Text(draw(_WORDS)), *uses)
        said.append(parts)
        talk.ask(*parts)
        if uses:
            name = "bash" if talk.dialect is Dialect.GEMINI else None
            talk.say("tool", *(ToolResult(use.id, (Text(draw(_WORDS)),), name=name) for use in uses))
        else:
            talk.say("user", draw(_WORDS))
    return talk, said


def _without_ids(parts: tuple[Part, ...]) -> list[Part]:
    return [replace(part, id="") if isinstance(part, ToolUse) else part for part in parts]


@settings(max_examples=150, deadline=None)
@given(talks())
def test_all_that_was_sampled_is_there_once_byte_for_byte(told: tuple[Talk, list[tuple[Part, ...]]]) -> None:
    talk, said = told
    found = sorted(turn for dialogue in read(talk) if isinstance(dialogue, Dialogue) for turn in sampled(dialogue))
    assert [_without_ids(parts) for _, parts in found] == [_without_ids(parts) for parts in said]


def test_an_assistant_that_the_client_wrote_is_no_turn() -> None:
    talk = Talk()
    talk.say("user", "1+1?")
    talk.messages.append(Message("assistant", (Text("2"),)))
    talk.say("user", "2+2?")
    talk.ask(Text("4"))
    dialogue = only(talk)
    assert [line.turn is not None for line in dialogue.lines] == [False, False, False, True]
    assert len(dialogue.opening) == 3


def test_reasoning_that_was_not_sent_back_stands_where_it_was_sampled_only() -> None:
    talk = Talk(tools=())
    talk.say("user", "1+1?")
    talk.ask(Thinking("Two."), Text("2"), keep=False)
    talk.messages.append(Message("assistant", (Text("2"),)))
    talk.say("user", "2+2?")
    talk.ask(Thinking("Four."), Text("4"))
    first, second = read(talk)
    assert isinstance(first, Dialogue)
    assert isinstance(second, Dialogue)
    assert sampled(first) == [(0, (Thinking("Two."), Text("2")))]
    assert sampled(second) == [(1, (Thinking("Four."), Text("4")))]
    assert second.lines[1].message.parts == (Text("2"),)
    assert second.lines[1].turn is None


def test_a_prefilled_reply_is_no_turn_of_the_model() -> None:
    talk = Talk()
    talk.say("user", "1+1?")
    talk.say("assistant", "It is")
    talk.ask(Text(" 2"))
    assert read(talk) == [Unread.PREFILL]


def test_without_a_body_there_is_no_dialogue() -> None:
    talk = Talk()
    talk.say("user", "1+1?")
    talk.ask(Text("2"))
    talk.calls = [replace(captured, call=replace(captured.call, request_body=b"")) for captured in talk.calls]
    assert read(talk) == [Unread.REQUEST]


def test_a_reply_without_spelling_ends_the_dialogue_before_it() -> None:
    talk = Talk()
    talk.say("user", "1+1?")
    talk.ask(Text("2"))
    talk.say("user", "2+2?")
    talk.ask(Text("4"))
    some = Reading(read_request, lambda _model: {key: text for key, text in TEXTS.items() if text != b"4"})
    (found,) = read(talk, some)
    assert isinstance(found, Dialogue)
    assert sampled(found) == [(0, (Text("2"),))]
    assert found.trained == 1


def test_a_turn_without_spelling_is_known_by_the_request_that_repeats_it() -> None:
    talk = Talk()
    talk.say("user", "1+1?")
    talk.ask(Text("2"))
    talk.say("user", "3+1?")
    talk.ask(Text("4"))
    some = Reading(read_request, lambda _model: {key: text for key, text in TEXTS.items() if text != b"2"})
    (found,) = read(talk, some)
    assert isinstance(found, Dialogue)
    assert sampled(found) == [(0, (Text("2"),)), (1, (Text("4"),))]


def _in_harmony(talk: Talk, said: str, finish: FinishReason) -> None:
    made = talk.calls[-1].call
    completion = replace(
        made.completions[0],
        token_ids=type(made.completions[0].token_ids).of([*said.encode()]),
        logprobs=type(made.completions[0].logprobs).of([-1.0] * len(said.encode())),  # type: ignore[union-attr]
        finish_reason=finish,
    )
    talk.calls[-1] = replace(talk.calls[-1], call=replace(made, completions=(completion,)))


HARMONY = "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>Yes."


def test_foreign_markup_is_not_guessed_at() -> None:
    talk = Talk()
    talk.say("user", "Well?")
    talk.ask(Text("?"), keep=False)
    _in_harmony(talk, HARMONY, FinishReason.STOP)
    assert read(talk) == [Unread.REPLY]


def test_foreign_markup_is_read_by_the_request_that_repeats_it() -> None:
    talk = Talk()
    talk.say("user", "Well?")
    talk.ask(Text("?"), keep=False)
    _in_harmony(talk, HARMONY, FinishReason.STOP)
    talk.messages.append(Message("assistant", (Thinking("hm"), Text("Yes."))))
    talk.say("user", "Sure?")
    talk.ask(Text("Sure."))
    first, second = read(talk)
    assert isinstance(first, Dialogue)
    assert isinstance(second, Dialogue)
    assert sampled(first) == [(0, (Thinking("hm"), Text("Yes.")))]
    assert [ordinal for ordinal, _ in sampled(second)] == [1]


def test_a_repeated_reply_that_the_tokens_do_not_bear_out_is_not_believed() -> None:
    talk = Talk()
    talk.say("user", "Well?")
    talk.ask(Text("?"), keep=False)
    _in_harmony(talk, HARMONY, FinishReason.STOP)
    talk.messages.append(Message("assistant", (Text("No."),)))
    talk.say("user", "Sure?")
    talk.ask(Text("Sure."))
    first, _ = read(talk)
    assert first is Unread.REPLY


def test_calls_that_the_engine_found_and_nobody_can_read_are_not_text() -> None:
    talk = Talk()
    talk.say("user", "Well?")
    talk.ask(Text("?"), keep=False)
    _in_harmony(talk, 'bash(c="ls")', FinishReason.TOOL_CALLS)
    assert read(talk) == [Unread.REPLY]


def test_siblings_are_not_taken_for_each_other() -> None:
    talk = Talk()
    talk.say("user", "Well?")
    talk.ask(Text("No."), keep=False)
    talk.ask(Text("Yes."))
    talk.say("user", "Sure?")
    talk.ask(Text("Sure."))
    said = sorted(turn for dialogue in read(talk) if isinstance(dialogue, Dialogue) for turn in sampled(dialogue))
    assert said == [(0, (Text("No."),)), (1, (Text("Yes."),)), (2, (Text("Sure."),))]


def test_what_stands_behind_a_stop_string_was_not_said() -> None:
    talk = Talk(tools=())
    talk.say("user", "Count.")
    talk.ask(Text("1 2 3 STOP"), keep=False)
    made = talk.calls[-1].call
    ended = (replace(made.completions[0], stop_reason="STOP"),)
    talk.calls[-1] = replace(talk.calls[-1], call=replace(made, completions=ended))
    assert sampled(only(talk)) == [(0, (Text("1 2 3 "),))]
