"""Any other engine: what it sends is passed on untouched, and what it says of itself is noted."""

import json

import pytest

from polarproxy.engine.plain import Reader, plan
from polarproxy.errors import BadReply
from polarproxy.model import FinishReason, Usage
from polarproxy.wire.chat.fields import read_request

CHOICE = b'{"index":0,"finish_reason":"stop","message":{}}'
REPLY = b'{"id":"1","model":"m","choices":[%b],"usage":{"prompt_tokens":3,"x": 1e3}}' % CHOICE


def test_the_request_is_sent_as_it_came() -> None:
    body = b'{"model":"m","logprobs":true,"temperature":1e0,"x":[ 0.10 ]}'
    made = plan(read_request(body).fields, stream=True)
    assert (made.body, made.stream) == (body, True)


def test_a_reply_is_noted_and_not_touched() -> None:
    reader = Reader()
    assert reader.body(REPLY) is REPLY
    capture = reader.capture
    assert (capture.model, capture.request_id, capture.usage) == ("m", "1", Usage(3, 0))
    (completion,) = capture.completions()
    assert (list(completion.token_ids), completion.logprobs) == ([], None)
    assert completion.finish_reason is FinishReason.STOP
    assert capture.prompt is None


def test_a_stream_is_noted_and_not_touched() -> None:
    reader = Reader()
    events = [b'{"id":"1","choices":[{"index":%d,"delta":{},"finish_reason":%b}]}' % (place, reason)
              for place in (0, 1) for reason in (b"null", b'"length"')]  # fmt: skip
    assert [reader.event(event) for event in events] == events
    assert reader.capture.finished() == 2
    assert reader.event(b'{"choices":[],"usage":{"prompt_tokens":3}}') == b'{"choices":[],"usage":{"prompt_tokens":3}}'
    assert reader.capture.usage == Usage(3, 0)


def test_an_error_is_noted() -> None:
    reader = Reader()
    reader.event(b'{"error":{"message":"no"}}')
    assert json.loads(reader.capture.error or "") == {"message": "no"}


def test_an_error_that_is_null_is_none() -> None:
    reader = Reader()
    reader.event(b'{"error":null,"choices":null}')
    assert reader.capture.error is None


@pytest.mark.parametrize("data", [b"", b"hello", b"[]", b'{"choices":[7]}', b'{"choices":{}}', b"\xff"])
def test_what_cannot_be_read_is_reported_where_it_may_be_the_end(data: bytes) -> None:
    assert Reader().body(data) is data
    with pytest.raises(BadReply, match="not one of the chat API"):
        Reader().event(data)


def test_an_index_that_is_none_is_reported() -> None:
    with pytest.raises(BadReply, match="index"):
        Reader().event(b'{"choices":[{"index":"x"}]}')


def test_nothing_more_has_to_be_asked() -> None:
    assert Reader().follow_up() is None
