"""vLLM's `/v1/completions`: what it is asked for on behalf of a client, and replies in which something is odd."""

import json
from typing import Any

import pytest

from polarproxy.engine import plain
from polarproxy.engine.capture import Capture
from polarproxy.engine.vllm_completions import Asked, Reader, ask, plan
from polarproxy.errors import BadReply
from polarproxy.model import FinishReason
from polarproxy.trajectory.eligibility import Reason, untrainable_tokens
from polarproxy.wire.completions.fields import read_request
from tests.fakes.text_cases import TEXT_IDS

ALL = {"prompt": "p", **TEXT_IDS}


def sent(asked: dict[str, Any], *, stream: bool = False) -> tuple[dict[str, Any], Asked]:
    found = ask(read_request(json.dumps(asked).encode()).fields, stream=stream)
    assert found is not None
    return {name: json.loads(bytes(value)) for name, value in found[0].items()}, found[1]


def test_ids_and_logprobs_are_asked_for() -> None:
    fields, asked = sent({"prompt": "p", "x": 1})
    assert fields == {"prompt": "p", "x": 1, **TEXT_IDS}
    assert asked == Asked()


@pytest.mark.parametrize("prompt", ["p", ["p"], [1, 2], [[1, 2]]], ids=str)
def test_the_prompt_is_sent_as_it_came(prompt: Any) -> None:
    assert sent({"prompt": prompt})[0]["prompt"] == prompt


@pytest.mark.parametrize("count", [0, 5, -1])
def test_what_the_client_asked_for_stays(count: int) -> None:
    fields, asked = sent({**ALL, "logprobs": count})
    assert fields == {**ALL, "logprobs": count}
    assert asked == Asked(prompt_ids=True, token_ids=True, logprobs=True)


def test_null_is_not_asked_for() -> None:
    fields, asked = sent({"prompt": "p", "logprobs": None, "return_token_ids": None, "logprob_token_ids": None})
    assert fields == {"prompt": "p", "logprob_token_ids": None, **TEXT_IDS}
    assert asked == Asked()


@pytest.mark.parametrize("echo", [True, 1, "true"])
def test_an_echo_is_left_out_and_put_back(echo: bool | int | str) -> None:
    """With logprobs it would have vLLM compute those of the prompt, and leave its prefix cache aside."""
    fields, asked = sent({"prompt": 'a "b"\n', "echo": echo})
    assert fields == {"prompt": 'a "b"\n', **TEXT_IDS}
    assert asked == Asked(prompt=b'a \\"b\\"\\n')


def test_an_echo_with_logprobs_is_sent_on() -> None:
    fields, asked = sent({"prompt": "p", "echo": True, "logprobs": 2})
    assert fields == {"prompt": "p", "echo": True, "logprobs": 2, "return_token_ids": True}
    assert asked == Asked(logprobs=True, echo=True, prompt=b"p")


def test_an_echo_with_ids_shows_no_prompt() -> None:
    assert sent({**ALL, "echo": True})[1] == Asked(prompt_ids=True, token_ids=True, logprobs=True, echo=True)
    assert sent({"prompt": [1], "echo": True, "return_token_ids": True})[1] == Asked(prompt_ids=True, token_ids=True)


def test_a_stream_that_echoes_shows_the_ids_of_the_prompt() -> None:
    assert sent({"prompt": "p", "echo": True}, stream=True)[1] == Asked(prompt_ids=True, prompt=b"p")


@pytest.mark.parametrize("echo", [False, None, 0, "x", []], ids=str)
def test_what_is_no_echo_stays_as_it_is(echo: Any) -> None:
    fields, asked = sent({"prompt": "p", "echo": echo})
    assert fields == {"prompt": "p", "echo": echo, **TEXT_IDS}
    assert asked == Asked()


AS_IT_IS = [
    {},
    {"prompt": None},
    {"prompt": ["a", "b"]},
    {"prompt": [[1], [2]], "return_token_ids": True, "logprobs": 0},
    {"prompt": "p", "prompt_embeds": "AAAA"},
    {"prompt": "p", "logprob_token_ids": [5]},
    {"prompt": [1, 2], "echo": True},
    {"prompt": [1, 2], "echo": True, "logprobs": 1},
    {"prompt": "p", "echo": True, "max_tokens": 0},
    {"prompt": "p", "echo": True, "max_tokens": 0, "return_token_ids": True},
    {"prompt": "p", "echo": True, "suffix": "s"},
    {"prompt": "p", "echo": True, "truncate_prompt_tokens": 4, "truncation_side": "left"},
]


@pytest.mark.parametrize("asked", AS_IT_IS, ids=str)
def test_some_go_as_they_are(asked: dict[str, Any]) -> None:
    fields = read_request(json.dumps({**asked, "x": 1.0}).encode()).fields
    assert ask(fields, stream=False) is None
    made = plan(fields, stream=True)
    assert json.loads(made.body) == {**asked, "x": 1.0}
    assert made.stream
    assert isinstance(made.reader, plain.Reader)


@pytest.mark.parametrize(
    "asked",
    [
        {"prompt": "p", "suffix": "s"},
        {"prompt": "p", "truncate_prompt_tokens": 4},
        {"prompt": "p", "echo": True, "truncate_prompt_tokens": 4},
        {"prompt": "p", "max_tokens": 0},
        {"prompt": "p", "logprob_token_ids": [5], "logprobs": 0},
        {"prompt": "p", "use_beam_search": True, "n": 2},
    ],
    ids=str,
)
def test_others_that_are_much_like_them_do_not(asked: dict[str, Any]) -> None:
    assert sent(asked)[0]["return_token_ids"] is True


@pytest.mark.parametrize("name", ["echo", "logprobs", "return_token_ids", "max_tokens", "suffix", "prompt"])
@pytest.mark.parametrize("value", ["x", 7, 1.5, [], {}, True], ids=str)
def test_members_of_the_wrong_type_do_not_raise(name: str, value: Any) -> None:
    plan(read_request(json.dumps({"prompt": "p", "echo": True, name: value}).encode()).fields, stream=True)


def test_unknown_members_reach_the_engine_byte_for_byte() -> None:
    odd = b'{"a" :1e3, "b": [0.10 , 123456789012345678901234567890], "c":"\\u00fc\\/"}'
    made = plan(read_request(b'{"prompt":"\\u00fc","metadata": %b }' % odd).fields, stream=True)
    assert odd in made.body
    assert b'"prompt":"\\u00fc"' in made.body


def reader(**asked: Any) -> Reader:
    return Reader(Asked(**asked))


def values(*numbers: float | None) -> dict[str, Any]:
    return {
        "text_offset": [0] * len(numbers),
        "token_logprobs": list(numbers),
        "tokens": ["x"] * len(numbers),
        "top_logprobs": [None] * len(numbers),
    }


def chunk(*choices: dict[str, Any]) -> bytes:
    found = [{"index": 0, "text": "", "finish_reason": None, **choice} for choice in choices or ({},)]
    return json.dumps({"id": "1", "choices": found}).encode()


def shown(data: bytes) -> list[dict[str, Any]]:
    choices: list[dict[str, Any]] = json.loads(data)["choices"]
    return choices


def test_several_tokens_in_one_chunk() -> None:
    read = reader()
    first = chunk({"text": "ab", "token_ids": [1, 2], "logprobs": values(-0.5, -0.25), "prompt_token_ids": [9]})
    assert shown(read.event(first)) == [
        {
            "index": 0,
            "text": "ab",
            "finish_reason": None,
            "token_ids": None,
            "logprobs": None,
            "prompt_token_ids": None,
        }
    ]
    read.event(chunk({"token_ids": [], "logprobs": None}))
    read.event(chunk({"token_ids": [3], "logprobs": values(-1.0), "finish_reason": "stop", "stop_reason": 7}))
    (completion,) = read.capture.completions()
    assert list(completion.token_ids) == [1, 2, 3]
    assert list(completion.logprobs or ()) == [-0.5, -0.25, -1.0]
    assert (completion.finish_reason, completion.stop_reason) == (FinishReason.STOP, "7")
    assert list(read.capture.prompt or ()) == [9]


def echoed(index: int, text: str, *tokens: int) -> dict[str, Any]:
    numbers = [None, -9.0, *(-token / 8 for token in tokens)]
    ids = {"token_ids": list(tokens), "prompt_token_ids": [5, 6]}
    return {"index": index, "text": text, "logprobs": values(*numbers), **ids}


def test_each_choice_echoes_the_prompt_once() -> None:
    read = reader(logprobs=True, echo=True, prompt=b"\\u00fc ")
    begun = read.event(chunk(echoed(1, "a", 1)))
    again = read.event(chunk({"index": 1, "text": "b", "token_ids": [2], "logprobs": values(-0.25)}))
    other = read.event(chunk(echoed(0, "", 3, 4), {"index": 1, "text": "c", "token_ids": [], "logprobs": values()}))
    texts = [[(choice["index"], choice["text"]) for choice in shown(data)] for data in (begun, again, other)]
    assert texts == [[(1, "ü a")], [(1, "b")], [(0, "ü "), (1, "c")]]
    assert len(shown(begun)[0]["logprobs"]["tokens"]) == 3
    first, second = read.capture.completions()
    assert (list(first.token_ids), list(first.logprobs or ())) == ([3, 4], [-0.375, -0.5])
    assert (list(second.token_ids), list(second.logprobs or ())) == ([1, 2], [-0.125, -0.25])


def test_a_whole_reply_echoes_in_each_choice() -> None:
    read = reader(logprobs=True, echo=True, prompt=b"p")
    view = shown(read.body(chunk(echoed(0, "a", 1), echoed(1, "b", 2))))
    assert [choice["text"] for choice in view] == ["pa", "pb"]
    assert [choice["token_ids"] for choice in view] == [None, None]
    assert [list(one.logprobs or ()) for one in read.capture.completions()] == [[-0.125], [-0.25]]


def test_a_chunk_without_logprobs_is_noticed_and_not_filled_in() -> None:
    read = reader()
    read.event(chunk({"token_ids": [1], "logprobs": values(-0.5)}))
    read.event(chunk({"token_ids": [2], "logprobs": None}))
    (completion,) = read.capture.completions()
    assert untrainable_tokens(completion) is Reason.LOGPROB_COUNT


@pytest.mark.parametrize("value", [None, -9999.0])
def test_a_value_that_is_none_is_kept_as_it_is_and_not_trained(value: float | None) -> None:
    read = reader()
    read.event(chunk({"token_ids": [1], "logprobs": values(value)}))
    (completion,) = read.capture.completions()
    assert untrainable_tokens(completion) is Reason.BAD_LOGPROB


def test_an_echo_without_ids_of_the_prompt_gives_nothing_to_train() -> None:
    read = reader(logprobs=True, echo=True)
    read.event(chunk({"token_ids": [1], "logprobs": values(None, -9.0, -0.5)}))
    (completion,) = read.capture.completions()
    assert read.capture.prompt is None
    assert untrainable_tokens(completion) is Reason.LOGPROB_COUNT


def test_a_stream_that_breaks_off_holds_what_was_sampled() -> None:
    read = reader()
    read.event(chunk({"token_ids": [1], "logprobs": values(-0.5)}))
    (completion,) = read.capture.completions()
    assert (list(completion.token_ids), completion.finish_reason, read.capture.finished()) == ([1], None, 0)


def test_the_first_reason_to_finish_is_the_reason() -> None:
    read = reader()
    read.event(chunk({"finish_reason": "length", "stop_reason": None}))
    read.event(chunk({"finish_reason": "stop", "stop_reason": "x"}))
    assert read.capture.completions()[0].finish_reason is FinishReason.LENGTH


def test_an_error_event_is_kept_and_passed_on() -> None:
    read = reader()
    data = b'{"error": {"message": "EngineCore died", "code": 500}}'
    assert read.event(data) is data
    assert json.loads(read.capture.error or "") == {"message": "EngineCore died", "code": 500}


def test_a_usage_chunk_is_passed_on_and_read() -> None:
    read = reader(prompt=b"p")
    data = b'{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":3}}'
    assert read.event(data) is data
    assert read.capture.usage is not None
    assert read.capture.usage.completion_tokens == 3


GARBAGE = [
    b"",
    b"nothing",
    b"[]",
    b"null",
    b'{"choices": null}',
    b'{"choices": [7]}',
    b'{"choices": [{"index": "x"}]}',
    b'{"choices": [{"prompt_token_ids": [1.5]}]}',
    b'{"choices": [{"prompt_token_ids": 7}]}',
    b'{"choices": [{"index": 0, "logprobs": NaN}]}',
]


@pytest.mark.parametrize("data", GARBAGE)
def test_what_is_no_chunk_is_refused(data: bytes) -> None:
    with pytest.raises(BadReply):
        _read_to_the_end(data)


def _read_to_the_end(data: bytes) -> None:
    """The ids of a prompt are read when the stream is over."""
    made = reader()
    made.event(data)
    made.capture.completions()


@pytest.mark.parametrize("data", [*GARBAGE, b"{}", b'{"error": {}}'])
def test_what_is_no_reply_is_refused(data: bytes) -> None:
    with pytest.raises(BadReply):
        reader().body(data)


def test_a_choice_without_text_cannot_echo() -> None:
    with pytest.raises(BadReply):
        reader(prompt=b"p").event(b'{"choices": [{"index": 0}]}')


def test_only_the_fields_that_were_added_are_touched() -> None:
    odd = b'{"choices":[{"index":0, "text":"\\u00fc","x":[1e3, 0.10],"token_ids":[1],"y": 1.0}],"z":[ ]}'
    assert reader().event(odd) == odd.replace(b'"token_ids":[1]', b'"token_ids":null')
    echoing = reader(prompt=b"p ").body(odd)
    assert echoing == odd.replace(b'"token_ids":[1]', b'"token_ids":null').replace(b'"\\u00fc"', b'"p \\u00fc"')


def test_the_same_prompt_again_is_not_parsed_again() -> None:
    first = reader()
    first.event(chunk({"prompt_token_ids": [1, 2]}))
    second = Reader(Asked(), first.capture.prompt_parsed)
    second.event(chunk({"prompt_token_ids": [1, 2, 3]}))
    assert list(second.capture.prompt or ()) == [1, 2, 3]


def test_nothing_more_has_to_be_asked() -> None:
    assert reader().follow_up() is None
    assert isinstance(reader().capture, Capture)
