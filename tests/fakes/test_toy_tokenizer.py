"""The toy tokenizer keeps what the tests that build on it rely on."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.fakes import Tool, compose
from tests.fakes.toy_tokenizer import SPECIALS, decode, encode, prompt_ids, token_texts

texts = st.lists(st.one_of(st.text(), st.sampled_from(SPECIALS))).map("".join)
USER = {"role": "user", "content": "hi"}
ODD_ARGUMENTS = '{"unit":"C", "city":"Paris"}'


@given(texts)
def test_text_survives_the_round_trip(text: str) -> None:
    assert decode(encode(text)) == text
    assert "".join(token_texts(encode(text))) == text


def test_a_text_can_be_sampled_in_more_than_one_way() -> None:
    assert decode([ord("a"), ord("b")]) == decode(encode("ab"))
    assert encode("ab") != [ord("a"), ord("b")]


def test_part_of_a_character_has_no_text() -> None:
    assert token_texts(encode("\U0001f9d1")) == ["", "\U0001f9d1"]


def told(**changes: Any) -> list[int]:
    """The prompt after a tool call was answered, with the assistant's message repeated except for `changes`."""
    call = {"function": {"name": "get_weather", "arguments": changes.pop("arguments", ODD_ARGUMENTS)}}
    message = {"role": "assistant", "content": "Let me look.", "reasoning": "A tool.", "tool_calls": [call]}
    return prompt_ids([USER, message | changes, {"role": "tool", "content": "18"}])


def test_a_repeated_history_extends_what_was_sampled() -> None:
    reply = compose("Let me look.", reasoning="A tool.", tools=[Tool("get_weather", ODD_ARGUMENTS)])
    history = prompt_ids([USER]) + reply.token_ids
    assert told()[: len(history)] == history
    assert told(arguments='{"unit": "C", "city": "Paris"}')[: len(history)] != history
    assert told(reasoning=None)[: len(history)] != history
