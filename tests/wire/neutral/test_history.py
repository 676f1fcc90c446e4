"""Recorded turns are recognised by what was said, however a harness spells it; what says anything else is another turn."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polarproxy.wire.chat.request import decode_request, encode_request
from polarproxy.wire.neutral.history import Turn, fit, has_media, reply_turns, turns
from polarproxy.wire.neutral.meaning import Meanings
from polarproxy.wire.neutral.reply import Choice, Reply
from polarproxy.wire.neutral.request import Message, Request, Text, Thinking, ToolResult, ToolUse
from tests.wire.harness_reading import scenarios
from tests.wire.harness_tables import LINEAGES
from tests.wire.neutral.strategies import requests

Json = dict[str, Any]

SAMPLED = '{"unit":"C", "city":"M\\u00fcnchen", "days":1e3}'
ASK: list[Json] = [{"role": "system", "content": "You help."}, {"role": "user", "content": "Weather?"}]
ANSWER = Reply(
    (Choice(0, (Thinking("\nHe asks.\n"), Text("I look.\n\n"), ToolUse("c1", "look", SAMPLED)), "tool_calls"),)
)


def chat(messages: list[Json], **members: Any) -> Request:
    return decode_request(json.dumps({"model": "m", "messages": messages} | members).encode()).request


def assistant(**members: Any) -> Json:
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": SAMPLED}}
    message = {"role": "assistant", "reasoning": "He asks.", "content": "I look.\n\n", "tool_calls": [call]}
    return {name: value for name, value in (message | members).items() if value is not ...}


def called(arguments: Any, id: str = "c1", name: str = "look") -> list[Json]:
    return [{"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}]


def result(content: Any = "4 degrees", id: str = "c1") -> Json:
    return {"role": "tool", "tool_call_id": id, "content": content}


def sent(*messages: Json, ask: list[Json] | None = None, **members: Any) -> Turn:
    """The last turn of the conversation as it comes back."""
    return turns(chat([*(ask or ASK), *messages], **members))[-1]


RECORDED = reply_turns(chat(ASK), ANSWER)[0]
BACK = sent(assistant(), result())

SAME: dict[str, Turn] = {
    "as it was": BACK,
    "compact arguments (Qwen Code, pi, OpenCode)": sent(
        assistant(tool_calls=called('{"unit":"C","city":"München","days":1000}')), result()
    ),
    "spaced arguments (vLLM's whole replies, Python)": sent(
        assistant(tool_calls=called('{"unit": "C", "city": "M\\u00fcnchen", "days": 1000.0}')), result()
    ),
    "arguments as an object (Claude Code, Gemini CLI)": sent(
        assistant(tool_calls=called({"unit": "C", "city": "München", "days": 1000})), result()
    ),
    "keys in another order": sent(assistant(tool_calls=called('{"days":1000,"city":"München","unit":"C"}')), result()),
    "dropped reasoning (aider, Gemini CLI)": sent(assistant(reasoning=...), result()),
    "reasoning under its older name": sent(assistant(reasoning=..., reasoning_content="He asks."), result()),
    "unknown members in provider_specific_fields (mini-swe-agent)": sent(
        assistant(provider_specific_fields={"refusal": None}, function_call=None, audio=None), result()
    ),
    "members in another order (mini-swe-agent)": sent(dict(reversed(assistant().items())), result()),
    "ids of its own (Gemini CLI)": sent(assistant(tool_calls=called(SAMPLED, "look_1730_0")), result(id="look_1730_0")),
    "a list of one text (Claude Code)": sent(
        assistant(content=[{"type": "text", "text": "I look.\n\n"}]),
        result([{"type": "text", "text": "4 degrees"}]),
        ask=[{"role": each["role"], "content": [{"type": "text", "text": each["content"]}]} for each in ASK],
    ),
    "a cache mark that moved": sent(
        assistant(content=[{"type": "text", "text": "I look.\n\n", "cache_control": {"type": "ephemeral"}}]), result()
    ),
    "text without the space that the tool parser left": sent(assistant(content="I look."), result()),
    "texts of the assistant in several parts": sent(
        assistant(content=[{"type": "text", "text": "I "}, {"type": "text", "text": "look."}]), result()
    ),
}


@pytest.mark.parametrize("how", SAME)
def test_a_turn_is_recognised(how: str) -> None:
    assert SAME[how].key == RECORDED.key
    assert SAME[how].chat_messages == RECORDED.chat_messages == 3
    assert fit(SAME[how], RECORDED) is not None


DIFFERENT: dict[str, Turn] = {
    "another value": sent(assistant(tool_calls=called('{"unit":"F","city":"München","days":1000}')), result()),
    "a member less": sent(assistant(tool_calls=called('{"unit":"C","city":"München"}')), result()),
    "a number as text": sent(assistant(tool_calls=called('{"unit":"C","city":"München","days":"1000"}')), result()),
    "another tool": sent(assistant(tool_calls=called(SAMPLED, name="ask")), result()),
    "a call twice": sent(assistant(tool_calls=called(SAMPLED) + called(SAMPLED, "c2")), result()),
    "a call dropped": sent(assistant(tool_calls=...), {"role": "user", "content": "?"}),
    "a call that was cut": sent(assistant(tool_calls=called(SAMPLED[:-1])), result()),
    "another text": sent(assistant(content="I look!"), result()),
    "no text": sent(assistant(content=None), result()),
    "another question": sent(assistant(), result(), ask=[ASK[0], {"role": "user", "content": "Weather? "}]),
    "another system prompt": sent(assistant(), result(), ask=[{"role": "system", "content": "You help!"}, ASK[1]]),
    "a compacted beginning": sent(assistant(), result(), ask=[{"role": "user", "content": "Summary: weather"}]),
    "another tool list": sent(assistant(), result(), tools=[{"type": "function", "function": {"name": "look"}}]),
    "other settings of the template": sent(assistant(), result(), chat_template_kwargs={"enable_thinking": False}),
    "a form of the output": sent(assistant(), result(), response_format={"type": "json_object"}),
    "another model": sent(assistant(), result(), model="other"),
    "another effort": sent(assistant(), result(), reasoning_effort="high"),
}


def test_some_templates_tell_the_choice_of_a_tool() -> None:
    tools = [{"type": "function", "function": {"name": "look"}}]
    free = sent(assistant(), result(), tools=tools)
    assert free.key == sent(assistant(), result(), tools=tools, tool_choice="auto").key
    named = {"type": "function", "function": {"name": "look"}}
    others = {
        sent(assistant(), result(), tools=tools, tool_choice=choice).key for choice in ("none", "required", named)
    }
    assert len(others | {free.key}) == 4


def test_every_member_of_a_tool_may_be_told_by_a_template() -> None:
    tool: Json = {"name": "look", "description": "Looks.", "parameters": {"type": "object"}, "strict": False}
    changed: list[Json] = [
        {},
        {"name": "see"},
        {"description": "Sees."},
        {"parameters": {"type": "string"}},
        {"strict": True},
    ]
    keys = {sent(assistant(), tools=[{"type": "function", "function": tool | one}]).key for one in changed}
    assert len(keys) == len(changed)


def test_a_result_that_is_an_error_is_another_one() -> None:
    results = [Message("tool", (ToolResult("c1", (Text("4 degrees"),), is_error=wrong),)) for wrong in (True, False)]
    assert Meanings().message(results[0]) != Meanings().message(results[1])


@pytest.mark.parametrize("how", DIFFERENT)
def test_another_turn_is_not_recognised(how: str) -> None:
    assert DIFFERENT[how].key != RECORDED.key


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("1e3", "1000"),
        ("1000.0", "1000"),
        ("0.10", "0.1"),
        ("-0.0", "0"),
        ("12345678901234567890", "12345678901234567000"),
        ('"\\u00fc"', '"ü"'),
        ('"\\/"', '"/"'),
        ('{"a": 1, "a": 2}', '{"a": 2}'),
        ('{"b": [1, {"d": 2, "c": 3}], "a": null}', '{"a":null,"b":[1,{"c":3,"d":2}]}'),
    ],
)
def test_values_that_json_writers_spell_differently_are_equal(one: str, other: str) -> None:
    first = sent(assistant(tool_calls=called(f'{{"x": {one}}}')), result())
    second = sent(assistant(tool_calls=called(f'{{"x":{other}}}')), result())
    assert first.key == second.key
    found = fit(first, second)
    assert found is not None
    assert not found.same_spelling


@pytest.mark.parametrize(
    ("one", "other"), [("1", "true"), ("1", '"1"'), ("0", "null"), ("0", "false"), ("[]", "{}"), ('"a"', '"a "')]
)
def test_values_that_are_not_the_same_are_not_equal(one: str, other: str) -> None:
    first = sent(assistant(tool_calls=called(f'{{"x": {one}}}')), result())
    second = sent(assistant(tool_calls=called(f'{{"x": {other}}}')), result())
    assert first.key != second.key


BLANK: tuple[str | Json, ...] = ("", " ", "{}", "{ }", {})


def test_no_arguments_are_an_empty_object() -> None:
    assert len({sent(assistant(tool_calls=called(said)), result()).key for said in BLANK}) == 1


def test_arguments_that_are_no_json_are_compared_as_text() -> None:
    broken = [
        sent(assistant(tool_calls=called(said)), result()).key for said in ("{'a': 1}", "{'a':1}", "NaN", "[" * 99)
    ]
    assert len(set(broken)) == 4


def test_no_content_is_one_meaning() -> None:
    keys = {
        sent(assistant(content=content), result()).key
        for content in (None, "", "\n\n", [], [{"type": "text", "text": ""}])
    }
    assert len(keys) == 1


def test_several_texts_of_a_user_are_not_one() -> None:
    parts = [{"type": "text", "text": "Wea"}, {"type": "text", "text": "ther?"}]
    assert sent(assistant(), result(), ask=[ASK[0], {"role": "user", "content": parts}]).key != RECORDED.key


def test_results_belong_to_calls_and_not_to_ids() -> None:
    def asked(ids: tuple[str, str], order: tuple[int, int]) -> bytes:
        calls = called("{}", ids[0], "a") + called("{}", ids[1], "b")
        results = [result("one", ids[order[0]]), result("two", ids[order[1]])]
        return sent(assistant(tool_calls=calls), *results, {"role": "assistant", "content": "so"}).key

    assert asked(("x", "y"), (0, 1)) == asked(("p", "q"), (0, 1))
    assert asked(("x", "y"), (0, 1)) == asked(("y", "x"), (0, 1))
    assert asked(("x", "y"), (0, 1)) != asked(("x", "y"), (1, 0))


def test_ids_that_a_client_uses_again_mean_the_later_call() -> None:
    def asked(first: str, second: str) -> bytes:
        one = assistant(tool_calls=called("{}", first))
        return sent(one, result("1", first), assistant(tool_calls=called("{}", second)), result("2", second), one).key

    assert asked("call_0", "call_0") == asked("a", "b")


def test_half_characters_have_a_meaning() -> None:
    def said(text: str) -> bytes:
        return turns(Request(None, (Message("user", (Text(text),)), Message("assistant", (Text("a"),)))))[0].key

    assert said("\ud800") == said("\ud800")
    assert len({said(text) for text in ("\ud800", "\ud801", "\\ud800", "")}) == 4


def test_results_without_ids_answer_in_order() -> None:
    calls = (ToolUse("", "a", "{}"), ToolUse("", "b", "{}"))
    results = tuple(ToolResult("", (Text(text),)) for text in ("one", "two"))
    end = Message("assistant", (Text("so"),))
    bare = Request(None, (Message("assistant", calls), Message("tool", results), end))
    named = Request(
        None,
        (
            Message("assistant", tuple(replace(call, id=call.name) for call in calls)),
            Message("tool", tuple(replace(each, id=id) for each, id in zip(results, "ab", strict=True))),
            end,
        ),
    )
    assert [turn.key for turn in turns(bare)] == [turn.key for turn in turns(named)]


def test_the_reasoning_that_came_back_tells_which_turn_is_meant() -> None:
    def recorded(reasoning: str) -> Turn:
        parts = (Thinking(reasoning), *ANSWER.answer.parts[1:]) if reasoning else ANSWER.answer.parts[1:]
        return reply_turns(chat(ASK), Reply((Choice(0, parts, "tool_calls"),)))[0]

    first, second, none = recorded("He asks."), recorded("Hm."), recorded("")
    assert first.key == second.key == none.key
    assert fit(BACK, second) is None
    assert fit(BACK, none) is None
    dropped = sent(assistant(reasoning=...), result())
    fits = [fit(dropped, each) for each in (first, second, none)]
    assert fits[0] == fits[1]
    assert fits[0] is not None
    assert fits[2] is not None
    assert fits[2] > fits[0]


def test_of_turns_that_say_the_same_the_one_with_the_ids_that_came_back_is_meant() -> None:
    def recorded(id: str) -> Turn:
        return reply_turns(chat(ASK), Reply((Choice(0, (ToolUse(id, "look", SAMPLED),), "tool_calls"),)))[0]

    back = sent(assistant(reasoning=..., content=None), result())
    same, other = fit(back, recorded("c1")), fit(back, recorded("c9"))
    assert same is not None
    assert other is not None
    assert same > other


@pytest.mark.parametrize(
    ("earlier", "own", "fits"),
    [
        ("He asks.", "So.", True),
        (..., "So.", True),
        ("He asks.", ..., True),
        (..., ..., True),
        ("Edited.", "So.", False),
        ("Edited.", ..., False),
        ("He asks.", "Edited.", False),
        (..., "He asks.", False),
    ],
)
def test_the_reasoning_of_earlier_turns_must_be_what_was_recorded(earlier: Any, own: Any, fits: bool) -> None:
    before = [*ASK, assistant(), result()]
    recorded = reply_turns(chat(before), Reply((Choice(0, (Thinking("So."), Text("4")), "stop"),)))[0]
    again = [assistant(reasoning=earlier), result(), assistant(reasoning=own, content="4", tool_calls=...)]
    back = sent(*again, {"role": "user", "content": "?"})
    assert back.key == recorded.key
    found = fit(back, recorded)
    assert (found is not None) == fits
    assert found is None or found.same_reasoning == (... not in (earlier, own))


def test_reasoning_that_an_earlier_request_did_not_send_is_no_proof() -> None:
    bare = reply_turns(chat([*ASK, assistant(reasoning=...), result()]), Reply((Choice(0, (Text("4"),), "stop"),)))[0]
    assert fit(sent(assistant(), result(), {"role": "assistant", "content": "4"}), bare) is None


def test_ids_of_earlier_calls_tell_which_turn_is_meant() -> None:
    def recorded(id: str) -> Turn:
        before = [*ASK, assistant(tool_calls=called(SAMPLED, id)), result(id=id)]
        return reply_turns(chat(before), Reply((Choice(0, (Text("4"),), "stop"),)))[0]

    back = sent(assistant(), result(), {"role": "assistant", "content": "4"})
    assert back.key == recorded("c1").key == recorded("c9").key
    assert (back.ids, len(back.ids)) == (recorded("c1").ids, 1)
    assert back.ids != recorded("c9").ids


def test_choices_are_turns_of_their_own() -> None:
    reply = Reply((Choice(0, (Text("a"),), "stop"), Choice(1, (Text("b"),), "stop")))
    found = reply_turns(chat(ASK), reply)
    assert found[0].key == sent({"role": "assistant", "content": "a"}).key
    assert found[1].key == sent({"role": "assistant", "content": "b"}).key


def test_a_turn_within_a_turn_is_none() -> None:
    """Templates may make one turn of two messages of the assistant, or go on within the last one."""
    begun = {"role": "assistant", "content": "I "}
    assert reply_turns(chat([*ASK, begun]), ANSWER) == {}
    assert turns(chat([*ASK, begun, assistant(), result()]))[0].chat_messages == 4


def test_the_longest_history_comes_last() -> None:
    found = turns(chat([*ASK, assistant(), result(), {"role": "assistant", "content": "4"}, ASK[1]]))
    assert [turn.chat_messages for turn in found] == [3, 5]
    assert found[0].key == RECORDED.key


def test_media_are_seen_wherever_they_stand() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
    assert has_media(chat([{"role": "user", "content": [image]}]))
    assert has_media(chat([*ASK, assistant(), result([image])]))
    assert not has_media(chat([*ASK, assistant(), result()]))


@given(requests())
def test_a_request_written_for_the_engine_has_the_turns_of_what_is_written(request: Request) -> None:
    """The engine's own words are what turns are counted in, and reading them again finds the same ones."""
    body = encode_request(replace(request, extra={})).body
    asked = decode_request(body).request
    messages = json.loads(body)["messages"]
    again = decode_request(encode_request(asked).body).request
    assert [turn.key for turn in turns(asked)] == [turn.key for turn in turns(again)]
    for turn in turns(asked):
        assert messages[turn.chat_messages - 1]["role"] == "assistant"


@given(requests(), st.data())
def test_a_reply_is_recognised_once_it_is_repeated(request: Request, data: st.DataObject) -> None:
    words = data.draw(st.text(min_size=1, max_size=5), "text")
    said: tuple[Thinking | Text | ToolUse, ...] = (Text(words), ToolUse("c", "look", "{}"))
    asked = replace(request, messages=(*request.messages, Message("user", (Text("?"),))))
    recorded = reply_turns(asked, Reply((Choice(0, said, "tool_calls"),)))[0]
    back = replace(
        asked, messages=(*asked.messages, Message("assistant", said), Message("tool", (ToolResult("c", ()),)))
    )
    assert turns(back)[-1] == recorded


CONTINUED = [
    (harness, name, place, before)
    for harness, lineages in LINEAGES.items()
    for name, lines in lineages.items()
    for place, before in enumerate(lines)
    if isinstance(before, int)
]


def respelled(message: Message) -> tuple[Text | Thinking | ToolUse, ...]:
    """What the engine may have sampled for a message to come back as this one."""
    parts: list[Text | Thinking | ToolUse] = [
        Text(part.text + "\n\n") for part in message.parts if isinstance(part, Text)
    ]
    for place, part in enumerate(message.parts):
        if isinstance(part, ToolUse):
            spaced = json.dumps(json.loads(part.arguments or "{}"), indent=1, sort_keys=True)
            parts.append(ToolUse(f"chatcmpl-tool-{place}", part.name, spaced))
    return (Thinking("\nnever sent back\n"), *parts)


@pytest.mark.parametrize(("harness", "name", "place", "before"), CONTINUED)
def test_conversations_of_real_harnesses_are_recognised(harness: str, name: str, place: int, before: int) -> None:
    """In their recorded requests: the turns of the earlier one, then the reply to it, whatever it had been sampled as."""
    asked = scenarios(harness)[name]
    earlier, later = (decode_request(json.dumps(asked[each].asked).encode()).request for each in (before, place))
    found = turns(later)
    if earlier.tools != later.tools:
        # Another prompt from its first token on.
        assert not {turn.key for turn in turns(earlier)} & {turn.key for turn in found}
        return
    kept = [turn for turn in found if turn.chat_messages <= len(asked[before].messages)]
    assert [turn.key for turn in kept] == [turn.key for turn in turns(earlier)]
    answered = later.messages[len(earlier.messages)]
    recorded = reply_turns(earlier, Reply((Choice(0, respelled(answered), "stop"),)))[0]
    assert found[len(kept)].key == recorded.key
