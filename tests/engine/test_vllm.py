"""vLLM: what it is asked for on behalf of a client, and replies in which something is odd."""

import json
from typing import Any

import msgspec
import pytest

from polarproxy.engine.vllm import Asked, Reader, ask, plan
from polarproxy.errors import BadReply
from polarproxy.model import FinishReason
from polarproxy.trajectory.eligibility import Reason, untrainable_tokens
from polarproxy.wire.chat.fields import read_request
from tests.fakes.cases import IDS


def sent(asked: dict[str, Any]) -> tuple[dict[str, Any], Asked]:
    fields, wanted = ask(read_request(json.dumps(asked).encode()).fields)
    return {name: json.loads(bytes(value)) for name, value in fields.items()}, wanted


def test_ids_and_logprobs_are_asked_for() -> None:
    fields, asked = sent({"model": "m", "x": 1})
    assert fields == {"model": "m", "x": 1} | IDS
    assert asked == Asked()


def test_what_the_client_asked_for_stays() -> None:
    fields, asked = sent({**IDS, "top_logprobs": 5})
    assert fields == {**IDS, "top_logprobs": 5}
    assert asked.everything


def test_a_null_top_logprobs_switches_logprobs_off_for_the_client_only() -> None:
    fields, asked = sent({"logprobs": True, "top_logprobs": None})
    assert fields["top_logprobs"] == 0
    assert not asked.logprobs


@pytest.mark.parametrize("top", [2, -1])
def test_top_logprobs_without_logprobs_are_vllms_to_refuse(top: int) -> None:
    fields, _ = sent({"top_logprobs": top})
    assert fields == {"top_logprobs": top, "return_token_ids": True}


@pytest.mark.parametrize("logprobs", [{}, {"logprobs": None}, {"logprobs": False}], ids=str)
def test_those_of_named_tokens_are_too(logprobs: dict[str, Any]) -> None:
    fields, _ = sent({**logprobs, "logprob_token_ids": [5]})
    assert fields == {**logprobs, "logprob_token_ids": [5], "return_token_ids": True}
    fields, _ = sent({**logprobs, "logprob_token_ids": None})
    assert fields["logprobs"] is True


def test_a_null_for_reasoning_is_vllms_to_refuse() -> None:
    fields, asked = sent({"include_reasoning": None, **IDS})
    assert fields["include_reasoning"] is None
    assert asked.reasoning


@pytest.mark.parametrize("value", [False, 0, "false"])
def test_hidden_reasoning_is_never_sent_on(value: bool | int | str) -> None:
    fields, asked = sent({"include_reasoning": value, **IDS})
    assert "include_reasoning" not in fields
    assert asked == Asked(prompt_ids=True, reasoning=False)


@pytest.mark.parametrize("options", [None, {}, {"include_usage": True}, {"include_usage": False}, "garbage"], ids=str)
def test_stream_options_are_left_alone(options: Any) -> None:
    assert sent({"stream_options": options})[0]["stream_options"] == options
    assert "stream_options" not in sent({})[0]


@pytest.mark.parametrize("name", ["return_token_ids", "logprobs", "top_logprobs", "include_reasoning"])
@pytest.mark.parametrize("value", ["x", 7, 1.5, [], {}], ids=str)
def test_members_of_the_wrong_type_do_not_raise(name: str, value: Any) -> None:
    sent({name: value})


def test_unknown_members_reach_the_engine_byte_for_byte() -> None:
    odd = b'{"a" :1e3, "b": [0.10 , 123456789012345678901234567890], "c":"\\u00fc\\/"}'
    made = plan(read_request(b'{"model":"m","metadata": %b ,"messages":[ %b ]}' % (odd, odd)).fields, stream=True)
    assert made.body.count(odd) == 2
    assert made.stream


def reader(**asked: bool) -> Reader:
    return Reader(Asked(**asked))


def chunk(**choice: Any) -> bytes:
    return json.dumps({"id": "1", "choices": [{"index": 0, "delta": {}, "finish_reason": None, **choice}]}).encode()


def entry(value: float | None) -> dict[str, Any]:
    return {"token": "x", "logprob": value, "bytes": [120], "top_logprobs": []}


def test_several_tokens_in_one_chunk() -> None:
    read = reader()
    first = chunk(delta={"content": "ab"}, token_ids=[1, 2], logprobs={"content": [entry(-0.5), entry(-0.25)]})
    assert json.loads(read.event(first) or b"")["choices"][0] == {
        "index": 0,
        "delta": {"content": "ab"},
        "finish_reason": None,
        "token_ids": None,
        "logprobs": None,
    }
    read.event(chunk(token_ids=[], logprobs=None))
    read.event(chunk(token_ids=[3], logprobs={"content": [entry(-1.0)]}, finish_reason="stop", stop_reason=7))
    (completion,) = read.capture.completions()
    assert list(completion.token_ids) == [1, 2, 3]
    assert list(completion.logprobs or ()) == [-0.5, -0.25, -1.0]
    assert (completion.finish_reason, completion.stop_reason) == (FinishReason.STOP, "7")


def test_a_chunk_without_logprobs_is_noticed_and_not_filled_in() -> None:
    read = reader()
    read.event(chunk(token_ids=[1], logprobs={"content": [entry(-0.5)]}))
    read.event(chunk(token_ids=[2], logprobs=None))
    (completion,) = read.capture.completions()
    assert list(completion.logprobs or ()) == [-0.5]
    assert untrainable_tokens(completion) is Reason.LOGPROB_COUNT


@pytest.mark.parametrize("value", [None, -9999.0])
def test_a_value_that_is_none_is_kept_as_it_is_and_not_trained(value: float | None) -> None:
    read = reader()
    read.event(chunk(token_ids=[1], logprobs={"content": [entry(value)]}))
    (completion,) = read.capture.completions()
    assert untrainable_tokens(completion) is Reason.BAD_LOGPROB


def test_a_stream_that_breaks_off_holds_what_was_sampled() -> None:
    read = reader()
    read.event(chunk(token_ids=[1], logprobs={"content": [entry(-0.5)]}))
    (completion,) = read.capture.completions()
    assert (list(completion.token_ids), completion.finish_reason, read.capture.finished()) == ([1], None, 0)


def test_the_first_reason_to_finish_is_the_reason() -> None:
    read = reader()
    read.event(chunk(finish_reason="length", stop_reason=None))
    read.event(chunk(finish_reason="stop", stop_reason="x"))
    assert read.capture.completions()[0].finish_reason is FinishReason.LENGTH


def test_an_error_event_is_kept_and_passed_on() -> None:
    read = reader()
    data = b'{"error": {"message": "EngineCore died", "code": 500}}'
    assert read.event(data) is data
    assert json.loads(read.capture.error or "") == {"message": "EngineCore died", "code": 500}


GARBAGE = [
    b"",
    b"nothing",
    b"[]",
    b'{"choices": null}',
    b'{"choices": [7]}',
    b'{"choices": [{"index": "x"}]}',
    b'{"choices": [], "prompt_token_ids": [1.5]}',
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


@pytest.mark.parametrize("part", [b"null", b"7", b'"x"'])
def test_a_delta_to_hide_reasoning_in_must_be_an_object(part: bytes) -> None:
    with pytest.raises(BadReply):
        reader(reasoning=False).event(b'{"choices": [{"delta": %b}]}' % part)
    with pytest.raises(BadReply):
        reader(reasoning=False).body(b'{"choices": [{"message": %b}]}' % part)


def test_only_the_fields_that_were_added_are_touched() -> None:
    odd = b'{"choices":[{"index":0,"delta":{"content":"\\u00fc","x":[1e3, 0.10]},"token_ids":[1],"y": 1.0}],"z":[ ]}'
    assert reader().event(odd) == odd.replace(b'"token_ids":[1],"y": 1.0', b'"token_ids":null,"y":1.0')


def test_a_usage_chunk_is_passed_on_and_read() -> None:
    read = reader()
    data = b'{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":3}}'
    assert read.event(data) is data
    assert read.capture.usage is not None
    assert read.capture.usage.completion_tokens == 3


def test_nothing_more_has_to_be_asked() -> None:
    assert reader().follow_up() is None
    assert msgspec.json.decode(plan({}, stream=False).body) == IDS
