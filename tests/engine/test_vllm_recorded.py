"""Recorded replies of a real vLLM: the client sees what vLLM would have sent to it, and the capture holds what it sampled."""

import json
from typing import Any

import numpy as np
import pytest

from polarproxy.engine.capture import Capture
from polarproxy.trajectory.eligibility import untrainable_tokens
from polarproxy.wire.sse import EventSplitter, event_data
from tests.engine import recordings
from tests.fakes.cases import IDS
from tests.fakes.transcript import chunks

# What vLLM sent when asked for everything, and the case in which it was asked for less and sampled the same.
PAIRS = [
    ("hi", "hi_plain"),
    ("hi", "hi_ids_only"),
    ("hi", "hi_logprobs_only"),
    ("hi", "hi_hidden"),
    ("tool", "tool_hidden"),
    ("tools", "tools_plain"),
    ("emoji", "emoji_plain"),
    ("two", "two_plain"),
    ("hi_stop", "hi_stop_plain"),
    ("tool_cut", "tool_cut_plain"),
]
ASKS_FOR_ALL = ["hi", "tool", "tools", "emoji", "two", "top", "hi_stop", "hi_stop_token", "tool_cut", "hi_cut"]
ASKS_FOR_ALL_STREAMED = [*ASKS_FOR_ALL, "hi_usage", "two_usage", "hi_continuous"]


@pytest.mark.parametrize(("sent", "client"), PAIRS)
def test_a_stream_is_cut_to_what_the_client_asked_for(sent: str, client: str) -> None:
    made = recordings.planned(recordings.request(client), streamed=True)
    shown = recordings.shown_stream(made, recordings.stream(sent))
    assert recordings.events(shown) == recordings.events(recordings.stream(client))


@pytest.mark.parametrize(("sent", "client"), PAIRS)
def test_a_whole_reply_is_cut_to_what_the_client_asked_for(sent: str, client: str) -> None:
    made = recordings.planned(recordings.request(client), streamed=False)
    assert recordings.reply(made.reader.body(recordings.whole(sent))) == recordings.reply(recordings.whole(client))


@pytest.mark.parametrize("name", ASKS_FOR_ALL_STREAMED)
def test_a_client_that_asks_for_everything_gets_the_bytes_of_the_engine(name: str) -> None:
    made = recordings.planned(recordings.request(name), streamed=True)
    assert recordings.shown_stream(made, recordings.stream(name)) == recordings.stream(name)


@pytest.mark.parametrize("name", ASKS_FOR_ALL)
def test_and_so_it_does_in_one_piece(name: str) -> None:
    made = recordings.planned(recordings.request(name), streamed=False)
    sent = recordings.whole(name)
    assert made.reader.body(sent) is sent


@pytest.mark.parametrize("name", ["hi_plain", "tools_plain", "tool_hidden", "hi_ids_only", "hi_logprobs_only"])
def test_what_holds_nothing_to_cut_passes_byte_for_byte(name: str) -> None:
    """A reply of an engine that gives no more than the client asked for."""
    made = recordings.planned(recordings.request(name), streamed=True)
    assert recordings.shown_stream(made, recordings.stream(name)) == recordings.stream(name)


def sampled(name: str) -> dict[int, dict[str, Any]]:
    """What a recorded whole reply says was sampled, by choice."""
    return {choice["index"]: choice for choice in json.loads(recordings.whole(name))["choices"]}


def sampled_in_stream(name: str) -> dict[int, dict[str, Any]]:
    """The same from the recorded stream, added up."""
    found: dict[int, dict[str, Any]] = {}
    for chunk in chunks(recordings.stream(name)):
        for part in chunk["choices"]:
            choice = found.setdefault(part["index"], {"token_ids": [], "logprobs": {"content": []}})
            choice["token_ids"] += part.get("token_ids") or []
            choice["logprobs"]["content"] += (part.get("logprobs") or {"content": []})["content"]
            if part["finish_reason"] is not None:
                choice |= {name: part[name] for name in ("finish_reason", "stop_reason")}
    return found


def check(capture: Capture, truth: dict[int, dict[str, Any]]) -> None:
    completions = capture.completions()
    assert [completion.index for completion in completions] == sorted(truth)
    for completion in completions:
        said = truth[completion.index]
        assert list(completion.token_ids) == said["token_ids"]
        assert completion.logprobs is not None
        exact = [entry["logprob"] for entry in said["logprobs"]["content"]]
        np.testing.assert_array_equal(completion.logprobs.array, np.asarray(exact, np.float32))
        assert len(completion.logprobs) == len(completion.token_ids)
        assert completion.finish_reason == said["finish_reason"]
        assert completion.stop_reason == (None if said["stop_reason"] is None else str(said["stop_reason"]))
        assert untrainable_tokens(completion) is None
    assert capture.finished() == len(truth)


@pytest.mark.parametrize("name", ASKS_FOR_ALL)
@pytest.mark.parametrize("asked", [IDS, {}, {"include_reasoning": False}], ids=["everything", "nothing", "hidden"])
def test_the_capture_of_a_whole_reply_is_what_it_says(name: str, asked: dict[str, Any]) -> None:
    made = recordings.planned(asked, streamed=False)
    made.reader.body(recordings.whole(name))
    check(made.reader.capture, sampled(name))
    said = json.loads(recordings.whole(name))
    capture = made.reader.capture
    assert capture.prompt is not None
    assert list(capture.prompt) == said["prompt_token_ids"]
    assert (capture.model, capture.request_id) == ("tiny", said["id"])
    assert capture.usage is not None
    assert capture.usage.completion_tokens == sum(len(choice["token_ids"]) for choice in said["choices"])
    assert capture.usage.prompt_tokens == len(said["prompt_token_ids"])


@pytest.mark.parametrize("name", ASKS_FOR_ALL_STREAMED)
@pytest.mark.parametrize("asked", [IDS, {}, {"include_reasoning": False}], ids=["everything", "nothing", "hidden"])
def test_the_capture_of_a_stream_is_what_it_says(name: str, asked: dict[str, Any]) -> None:
    made = recordings.planned(asked, streamed=True)
    recordings.shown_stream(made, recordings.stream(name))
    check(made.reader.capture, sampled_in_stream(name))
    prompt = next(chunks(recordings.stream(name)))["prompt_token_ids"]
    assert made.reader.capture.prompt is not None
    assert list(made.reader.capture.prompt) == prompt
    assert (made.reader.capture.usage is None) == ("stream_options" not in recordings.request(name))


@pytest.mark.parametrize("name", ASKS_FOR_ALL)
def test_a_stream_and_a_whole_reply_sampled_the_same(name: str) -> None:
    """Whatever the parsers make of the text: tool calls, reasoning, stops, cut calls."""
    streamed, whole = sampled_in_stream(name), sampled(name)
    assert {index: choice["token_ids"] for index, choice in streamed.items()} == {
        index: choice["token_ids"] for index, choice in whole.items()
    }


def test_a_matched_stop_string_is_in_the_ids_and_not_in_the_text() -> None:
    made = recordings.planned({}, streamed=True)
    shown = recordings.shown_stream(made, recordings.stream("hi_stop"))
    text = "".join(part["delta"].get("content", "") for event in chunks(shown) for part in event["choices"])
    assert text == "\n\nHello! How can I "
    (completion,) = made.reader.capture.completions()
    assert completion.stop_reason == "help you"
    assert list(completion.token_ids)[-2:] == [1492, 498]


def test_events_that_carry_only_ids_are_not_for_a_client_that_asked_for_none() -> None:
    sent = [event_data(event) for event in EventSplitter().feed(recordings.stream("tool"))]
    empty = [data for data in sent if data and b'"delta":{},' in data and b'"finish_reason":null' in data]
    assert len(empty) > 5
    reader = recordings.planned({}, streamed=True).reader
    assert {reader.event(data) for data in empty} == {None}
    assert len(reader.capture.completions()[0].token_ids) == len(empty)
