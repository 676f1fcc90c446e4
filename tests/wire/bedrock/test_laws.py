"""What holds for every conversation that this dialect can say."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from polarproxy.wire.bedrock.reply import decode_reply, encode_reply
from polarproxy.wire.bedrock.request import decode_request, encode_request
from polarproxy.wire.bedrock.stream import Encoder, decode_stream
from polarproxy.wire.neutral.arguments import MALFORMED
from polarproxy.wire.neutral.reply import Begin, Reply, fold
from tests.wire.bedrock.drawing import sayable_replies, sayable_requests
from tests.wire.neutral.strategies import cut_pieces, envelope, json_objects

if TYPE_CHECKING:
    from polarproxy.wire.neutral.request import Request


def _streamed(data: st.DataObject, reply: Reply) -> bytes:
    encoder = Encoder(envelope())
    return b"".join(encoder.feed(piece) for piece in data.draw(cut_pieces(reply)))


@settings(max_examples=50)
@given(sayable_requests())
def test_a_request_comes_back_as_it_was(request: Request) -> None:
    encoded = encode_request(request)
    decoded = decode_request(encoded.body, model=request.model or "", stream=request.stream)
    assert decoded.request == request
    assert decoded.losses == ()
    assert {loss.why for loss in encoded.losses} <= {MALFORMED}


@given(sayable_replies())
def test_a_reply_comes_back_as_it_was(reply: Reply) -> None:
    encoded = encode_reply(reply, envelope())
    assert decode_reply(encoded.body) == reply
    assert {loss.why for loss in encoded.losses} <= {MALFORMED}


@settings(max_examples=70)
@given(st.data(), sayable_replies())
def test_a_stream_tells_the_same_as_the_whole_reply(data: st.DataObject, reply: Reply) -> None:
    whole = decode_reply(encode_reply(reply, envelope()).body)
    assert fold(decode_stream([_streamed(data, reply)])) == whole == reply


@settings(max_examples=50)
@given(st.data(), sayable_replies())
def test_any_cutting_of_the_bytes_gives_the_same_pieces(data: st.DataObject, reply: Reply) -> None:
    stream = _streamed(data, reply)
    places = sorted(data.draw(st.sets(st.integers(0, len(stream)), max_size=6)))
    chunks = [stream[start:end] for start, end in zip([0, *places], [*places, len(stream)], strict=True)]
    pieces = decode_stream(chunks)
    assert pieces == decode_stream([stream])
    assert pieces[0] == Begin()


@given(st.dictionaries(st.sampled_from(("newMember", "guardrailConfig", "x")), json_objects()), json_objects())
def test_unknown_members_survive(top: dict[str, bytes], inner: bytes) -> None:
    members = {"messages": msgspec.Raw(b"[]")} | {name: msgspec.Raw(value) for name, value in top.items()}
    fields = {"repetition_penalty": msgspec.Raw(inner)}
    body = msgspec.json.encode(members | {"additionalModelRequestFields": fields})
    first = decode_request(body, model="m", stream=False).request
    assert first.extra == top | {"repetition_penalty": inner}
    assert decode_request(encode_request(first).body, model="m", stream=False).request == first
