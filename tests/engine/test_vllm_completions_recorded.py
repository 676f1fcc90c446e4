"""Recorded replies of a real vLLM: the client sees what vLLM would have sent to it, and the capture holds what it sampled."""

import json
from typing import Any

import numpy as np
import pytest

from polarproxy.engine.capture import Capture
from polarproxy.trajectory.eligibility import untrainable_tokens
from tests.engine import completion_recordings as recordings
from tests.engine.recordings import events, reply
from tests.fakes.text_cases import TEXT_IDS
from tests.fakes.transcript import chunks

ASKS_FOR_LESS = [
    "hello_plain",
    "hello_ids_only",
    "hello_logprobs_only",
    "hello_stop_plain",
    "hello_cut_plain",
    "symbols_plain",
    "pair_plain",
    "likely_logprobs_only",
    "echo_plain",
    "echo_ids_only",
    "echo_logprobs_only",
    "echo_chosen_only",
    "pair_echo_plain",
    "ids_alone_plain",
]
ASKS_FOR_ALL = [
    "hello",
    "hello_in_a_list",
    "hello_as_token_ids",
    "hello_stop",
    "hello_stop_token",
    "hello_cut",
    "symbols",
    "pair",
    "likely",
    "echo",
    "echo_chosen",
    "ids_echo",
    "ids_alone",
]
ASKS_FOR_ALL_STREAMED = [*ASKS_FOR_ALL, "hello_usage", "hello_continuous", "pair_usage"]
GOES_AS_IT_IS = [
    "echo_of_nothing",
    "echo_of_nothing_all",
    "ids_echo_plain",
    "ids_echo_logprobs_only",
    "several",
    "several_plain",
]


@pytest.mark.parametrize("client", ASKS_FOR_LESS)
def test_a_stream_is_cut_to_what_the_client_asked_for(client: str) -> None:
    made = recordings.planned(recordings.request(client), streamed=True)
    shown = recordings.shown_stream(made, recordings.stream(recordings.sent_for(client, streamed=True)))
    assert events(shown) == events(recordings.stream(client))


@pytest.mark.parametrize("client", ASKS_FOR_LESS)
def test_a_whole_reply_is_cut_to_what_the_client_asked_for(client: str) -> None:
    made = recordings.planned(recordings.request(client), streamed=False)
    shown = made.reader.body(recordings.whole(recordings.sent_for(client, streamed=False)))
    assert reply(shown) == reply(recordings.whole(client))


@pytest.mark.parametrize("name", [*ASKS_FOR_ALL_STREAMED, *GOES_AS_IT_IS, "several_usage"])
def test_a_stream_that_needs_no_cutting_keeps_its_bytes(name: str) -> None:
    made = recordings.planned(recordings.request(name), streamed=True)
    assert recordings.sent_for(name, streamed=True) == name
    assert recordings.shown_stream(made, recordings.stream(name)) == recordings.stream(name)


@pytest.mark.parametrize("name", [*ASKS_FOR_ALL, *GOES_AS_IT_IS])
def test_and_so_does_a_whole_reply(name: str) -> None:
    made = recordings.planned(recordings.request(name), streamed=False)
    sent = recordings.whole(name)
    assert recordings.sent_for(name, streamed=False) == name
    assert made.reader.body(sent) is sent


def sampled(name: str) -> dict[int, dict[str, Any]]:
    """What a recorded whole reply says was sampled, by choice."""
    return {choice["index"]: choice for choice in json.loads(recordings.whole(name))["choices"]}


def check(capture: Capture, name: str) -> None:
    truth = sampled(name)
    completions = capture.completions()
    assert [completion.index for completion in completions] == sorted(truth)
    for completion in completions:
        said = truth[completion.index]
        assert list(completion.token_ids) == said["token_ids"]
        exact = said["logprobs"]["token_logprobs"][-len(said["token_ids"]) :]
        assert completion.logprobs is not None
        np.testing.assert_array_equal(completion.logprobs.array, np.asarray(exact, np.float32))
        assert completion.finish_reason == said["finish_reason"]
        assert completion.stop_reason == (None if said["stop_reason"] is None else str(said["stop_reason"]))
        assert untrainable_tokens(completion) is None
        assert capture.prompt is not None
        assert list(capture.prompt) == said["prompt_token_ids"]
    assert capture.finished() == len(truth)
    assert capture.model == "tiny"


@pytest.mark.parametrize("name", [*ASKS_FOR_ALL, *ASKS_FOR_LESS])
def test_the_capture_of_a_whole_reply_is_what_was_sampled(name: str) -> None:
    sent = recordings.sent_for(name, streamed=False)
    made = recordings.planned(recordings.request(name), streamed=False)
    made.reader.body(recordings.whole(sent))
    check(made.reader.capture, sent)
    said, usage = json.loads(recordings.whole(sent)), made.reader.capture.usage
    assert made.reader.capture.request_id == said["id"]
    assert usage is not None
    assert usage.completion_tokens == sum(len(choice["token_ids"]) for choice in said["choices"])


@pytest.mark.parametrize("name", [*ASKS_FOR_ALL, *ASKS_FOR_LESS])
def test_the_capture_of_a_stream_is_the_same(name: str) -> None:
    sent = recordings.sent_for(name, streamed=True)
    made = recordings.planned(recordings.request(name), streamed=True)
    recordings.shown_stream(made, recordings.stream(sent))
    check(made.reader.capture, sent)


@pytest.mark.parametrize("name", ["hello_usage", "hello_continuous", "pair_usage"])
def test_usage_at_the_end_of_a_stream_is_read(name: str) -> None:
    made = recordings.planned(recordings.request(name), streamed=True)
    recordings.shown_stream(made, recordings.stream(name))
    capture = made.reader.capture
    assert capture.usage is not None
    assert capture.usage.completion_tokens == sum(len(one.token_ids) for one in capture.completions())


@pytest.mark.parametrize("name", GOES_AS_IT_IS)
def test_what_goes_as_it_is_has_no_ids_and_still_its_end(name: str) -> None:
    made = recordings.planned(recordings.request(name), streamed=True)
    recordings.shown_stream(made, recordings.stream(name))
    capture = made.reader.capture
    assert capture.prompt is None
    assert [len(one.token_ids) for one in capture.completions()] == [0] * capture.finished()
    assert capture.finished() == len(sampled(name))


def test_an_echoed_prompt_is_no_part_of_what_was_sampled() -> None:
    """Its ids are in none of vLLM's `token_ids`, but its values stand in front of the logprobs."""
    said = sampled("echo")[0]
    assert len(said["logprobs"]["tokens"]) == len(said["prompt_token_ids"]) + len(said["token_ids"])
    made = recordings.planned(recordings.request("echo_logprobs_only"), streamed=False)
    shown = json.loads(made.reader.body(recordings.whole("echo")))["choices"][0]
    assert shown["text"] == recordings.request("echo")["prompt"] + said["text"]
    (completion,) = made.reader.capture.completions()
    assert len(completion.token_ids) == len(completion.logprobs or ()) == 5


def test_a_matched_stop_string_is_in_the_ids_and_not_in_the_text() -> None:
    made = recordings.planned(recordings.request("hello_stop_plain"), streamed=True)
    shown = recordings.shown_stream(made, recordings.stream("hello_stop"))
    text = "".join(part["text"] for event in chunks(shown) for part in event["choices"])
    assert text.endswith("How can I ")
    (completion,) = made.reader.capture.completions()
    assert completion.stop_reason == "help you"
    assert list(completion.token_ids)[-2:] == [1492, 498]


def test_tokens_are_spelled_as_the_engine_spells_them() -> None:
    made = recordings.planned(recordings.request("echo"), streamed=False)
    made.reader.body(recordings.whole("echo"))
    assert made.reader.capture.token_texts({151667, 42113, 872}) == {151667: b"<think>", 42113: b" greeting"}


def test_tokens_written_as_ids_are_no_spelling() -> None:
    made = recordings.planned(recordings.request("hello_as_token_ids"), streamed=False)
    made.reader.body(recordings.whole("hello_as_token_ids"))
    assert made.reader.capture.token_texts({151667}) == {}


def test_the_requests_that_were_recorded_are_those_that_are_sent() -> None:
    everything = {**recordings.request("hello_plain"), **TEXT_IDS}
    assert everything == recordings.request(recordings.sent_for("hello_plain", streamed=False))
