"""Law 8, from a stream: folded, it is the message of the whole reply."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from polarproxy.wire.chat.fold import fold_message
from polarproxy.wire.chat.unfold import unfold
from polarproxy.wire.sse import EventSplitter
from tests.wire.replies import encode, replies, what_it_says

RECORDED = Path(__file__).parents[2] / "fixtures" / "vllm"
SAME_TOKENS = ["hi", "hi_plain", "emoji", "hi_stop", "hi_stop_token", "hi_cut", "hi_hidden"]


@given(replies())
def test_folding_what_was_unfolded_gives_the_message_back(reply: dict[str, Any]) -> None:
    message = json.loads(fold_message(unfold(encode(reply), usage=True)))
    assert what_it_says(message) == what_it_says(reply["choices"][0]["message"])


def recorded(name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The message of a recorded stream, folded, and that of the whole reply to the same request."""
    both = json.loads((RECORDED / f"{name}.json").read_text(encoding="utf-8"))
    streamed = fold_message(EventSplitter().feed(both["stream"]["body"].encode()))
    return json.loads(streamed), json.loads(both["whole"]["body"])["choices"][0]["message"]


@pytest.mark.parametrize("name", SAME_TOKENS)
def test_vllm_tells_one_story_in_two_forms(name: str) -> None:
    streamed, whole = recorded(name)
    assert what_it_says(streamed) == what_it_says(whole)


@pytest.mark.parametrize("name", ["tool", "tools"])
def test_vllms_tool_calls_differ_in_spacing_and_in_their_ids_only(name: str) -> None:
    streamed, whole = recorded(name)
    for ours, theirs in zip(streamed["tool_calls"], whole["tool_calls"], strict=True):
        assert ours["function"]["name"] == theirs["function"]["name"]
        assert json.loads(ours["function"]["arguments"]) == json.loads(theirs["function"]["arguments"])
    assert streamed["reasoning"] == whole["reasoning"]


def test_arguments_are_joined_as_they_were_sampled() -> None:
    streamed, _ = recorded("tool")
    assert streamed["tool_calls"][0]["function"]["arguments"] == '{"unit":"C", "city":"Paris"}'


def test_only_the_first_choice_is_told() -> None:
    events = [b'data: {"choices":[{"index":%d,"delta":{"content":"%d"}}]}\n\n' % (place, place) for place in (1, 0, 2)]
    assert json.loads(fold_message(events)) == {"role": "assistant", "content": "0"}


@pytest.mark.parametrize(
    "event", [b": keep-alive\n\n", b"data: [DONE]\n\n", b"data: nothing\n\n", b'data: {"error":{}}\n\n']
)
def test_what_is_no_chunk_is_passed_over(event: bytes) -> None:
    assert json.loads(fold_message([event])) == {"role": "assistant", "content": ""}
