"""llama.cpp's `/v1/completions`: as chat, but that the prompt is the client's own."""

import json
import math
from typing import Any

import pytest

from polarproxy.engine import plain
from polarproxy.engine.llamacpp_completions import Reader, plan
from polarproxy.errors import BadReply
from polarproxy.model import FinishReason
from polarproxy.wire.completions.fields import read_request
from tests.engine.test_llamacpp import NEUTRAL, entry, tokenized

ADDED = {"stream": False, "n_probs": 1, "return_tokens": True, "verbose": True}


def made(prompt: Any = "hi", *, stream: bool = False, **asked: Any) -> tuple[dict[str, Any], Reader]:
    found = plan(read_request(json.dumps({"prompt": prompt, **asked}).encode()).fields, stream=stream)
    assert isinstance(found.reader, Reader)
    assert not found.stream
    return json.loads(found.body), found.reader


def answered(*, evaluated: int = 3, tokens: tuple[int, ...] = (5, 6), **choice: Any) -> dict[str, Any]:
    values = {"content": [entry(token) for token in (5, 6)]}
    verbose = {"tokens": list(tokens), "prompt": "shown", "tokens_evaluated": evaluated}
    return {
        "choices": [{"text": "hi", "index": 0, "logprobs": values, "finish_reason": "stop", **choice}],
        "created": 1,
        "model": "calc",
        "object": "text_completion",
        "usage": {"completion_tokens": 2, "prompt_tokens": evaluated, "total_tokens": 2 + evaluated},
        "id": "chatcmpl-1",
        "__verbose": {**verbose, "generation_settings": NEUTRAL},
        "timings": {"prompt_n": 3},
    }


def view(reader: Reader, reply: dict[str, Any]) -> dict[str, Any]:
    shown: dict[str, Any] = json.loads(reader.body(json.dumps(reply).encode()))
    return shown


def test_it_is_never_asked_to_stream() -> None:
    body, _ = made(stream=True, stream_options={"include_usage": True}, return_token_ids=True, x=1)
    assert body == {"prompt": "hi", "x": 1, **ADDED}


@pytest.mark.parametrize(
    ("asked", "probs", "shown"),
    [
        ({}, 1, False),
        ({"logprobs": 0}, 1, False),
        ({"logprobs": 4}, 4, True),
        ({"logprobs": True}, 1, True),
        ({"logprobs": -1}, 1, False),
        ({"n_probs": 2}, 2, True),
        ({"n_probs": 0, "logprobs": 3}, 1, False),
        ({"n_probs": 3, "logprobs": 1}, 3, True),
        ({"logprobs": "x"}, 1, False),
        ({"logprobs": None}, 1, False),
    ],
    ids=str,
)
def test_values_come_as_asked(asked: dict[str, Any], probs: int, shown: bool) -> None:
    body, reader = made(**asked)
    assert body["n_probs"] == probs
    assert (view(reader, answered())["choices"][0]["logprobs"] is not None) == shown


def test_the_client_does_not_see_what_it_did_not_ask_for() -> None:
    expected = answered(logprobs=None)
    del expected["__verbose"]
    assert view(made()[1], answered()) == expected


def test_ids_logprobs_and_all_the_rest() -> None:
    reader = made()[1]
    view(reader, answered())
    (completion,) = reader.capture.completions()
    assert list(completion.token_ids) == [5, 6]
    assert list(completion.logprobs or ()) == [-0.5, -0.5]
    assert completion.finish_reason is FinishReason.STOP
    assert reader.capture.usage is not None
    assert reader.capture.applied is not None


def test_a_lost_entry_makes_every_value_missing() -> None:
    reader = made()[1]
    view(reader, answered(tokens=(5, 6, 7)))
    (completion,) = reader.capture.completions()
    assert [math.isnan(value) for value in completion.logprobs or ()] == [True, True, True]


@pytest.mark.parametrize("prompt", ["hi", ["hi"]], ids=str)
def test_a_text_is_asked_of_the_servers_own_tokenizer(prompt: Any) -> None:
    """The very text that the server turned into ids, not what it shows of them."""
    reader = made(prompt)[1]
    assert reader.follow_up() is None
    view(reader, answered())
    follow_up = reader.follow_up()
    assert follow_up is not None
    asked = {"content": "hi", "add_special": True, "parse_special": True, "with_pieces": True}
    assert (follow_up.path, json.loads(follow_up.body)) == ("/tokenize", asked)
    reader.answer(tokenized(1, 2, 3))
    assert list(reader.capture.prompt or ()) == [1, 2, 3]


@pytest.mark.parametrize("prompt", [[7, 8, 9], [[7, 8, 9]]], ids=str)
def test_ids_are_the_prompt(prompt: Any) -> None:
    reader = made(prompt)[1]
    view(reader, answered())
    assert reader.follow_up() is None
    assert list(reader.capture.prompt or ()) == [7, 8, 9]


@pytest.mark.parametrize(("prompt", "evaluated"), [([7, 8], 3), ([7, 8, 9, 10], 3), ([1, "hi", 2], 3)], ids=str)
def test_of_another_length_they_are_not(prompt: Any, evaluated: int) -> None:
    reader = made(prompt)[1]
    view(reader, answered(evaluated=evaluated))
    assert reader.capture.prompt is None
    assert reader.follow_up() is None


@pytest.mark.parametrize("prompt", [["a", "b"], [[1], [2]], None, {"prompt_string": "a"}], ids=str)
def test_several_prompts_go_as_they_are(prompt: Any) -> None:
    asked = {"prompt": prompt, "stream": True}
    found = plan(read_request(json.dumps(asked).encode()).fields, stream=True)
    assert (json.loads(found.body), found.stream) == (asked, True)
    assert isinstance(found.reader, plain.Reader)
    assert found.reader.event(b"{}") == b"{}"


def test_a_reply_without_its_parts_is_refused() -> None:
    with pytest.raises(BadReply):
        made()[1].body(b'{"choices": []}')


def test_unknown_members_reach_the_engine_byte_for_byte() -> None:
    odd = b'{"a" :1e3, "b": [0.10], "c":"\\u00fc"}'
    fields = read_request(b'{"prompt": "\\u00fc", "metadata": %b}' % odd).fields
    assert odd in plan(fields, stream=False).body
