from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from polarproxy.wire.gemini.reply import decode_reply, encode_reply
from polarproxy.wire.gemini.request import decode_request, encode_request
from polarproxy.wire.gemini.stream import Encoder, decode_stream
from polarproxy.wire.neutral.reply import fold, pieces
from polarproxy.wire.neutral.request import Reasoning
from polarproxy.wire.sse import EventSplitter
from tests.wire.gemini.streams import asked, events
from tests.wire.neutral.strategies import cut_pieces, media_parts, replies, requests

if TYPE_CHECKING:
    from polarproxy.wire.neutral.reply import Reply
    from polarproxy.wire.neutral.request import Request


def _sayable(request: Request) -> Request:
    """With how to think as this API says it: a budget or a level means that thinking is on."""
    asked_for = request.reasoning
    if asked_for is None:
        return request
    if asked_for.enabled is False:
        return replace(request, reasoning=replace(asked_for, budget=None))
    on = asked_for.enabled or asked_for.budget is not None or asked_for.effort is not None
    return replace(request, reasoning=replace(asked_for, enabled=True if on else None))


def _counted(reply: Reply) -> Reply:
    """With counts as an engine tells them: the thoughts are part of the completion."""
    usage = reply.usage
    if usage is None or usage.reasoning_tokens is None:
        return reply
    return replace(reply, usage=replace(usage, completion_tokens=usage.completion_tokens + usage.reasoning_tokens))


def _says_something(request: Request) -> bool:
    return any(message.role not in ("system", "developer") for message in request.messages)


def _turns_are_whole(request: Request) -> bool:
    return all(first.role != "assistant" or second.role != "assistant" for first, second in pairwise(request.messages))


SAYABLE = (
    requests(
        systems="first",
        developers=False,
        message_names=False,
        media=media_parts(names=True),
        media_in_results=False,
        result_names=True,
        one_text=True,
        namespaces=False,
        strict=False,
        arguments="object",
        output_details=False,
        efforts=("minimal", "low", "medium", "high", "xhigh"),
        members=(
            "max_tokens",
            "temperature",
            "top_p",
            "top_k",
            "presence_penalty",
            "frequency_penalty",
            "seed",
            "n",
            "stop",
            "metadata",
        ),
    )
    .filter(_turns_are_whole)
    .map(_sayable)
)
REPLIES = replies(arguments="object", stop_texts=False, finishes=("stop", "length", "tool_calls", "abort")).map(
    _counted
)
ANY_REPLIES = replies().map(_counted)


@given(SAYABLE, st.sampled_from((None, True, False)))
def test_a_request_comes_back(request: Request, shown: bool | None) -> None:
    if request.reasoning is not None or shown is not None:
        request = replace(request, reasoning=replace(request.reasoning or Reasoning(), shown=shown))
    encoded = encode_request(request)
    assert encoded.losses == ()
    decoded = decode_request(encoded.body, model=request.model or "", stream=request.stream)
    assert decoded.losses == ()
    assert decoded.request == request


@given(requests().filter(_says_something))
def test_any_request_can_be_written_and_read(request: Request) -> None:
    decode_request(encode_request(request).body, model=request.model or "", stream=request.stream)


@given(REPLIES, st.booleans())
def test_a_reply_comes_back(reply: Reply, shown: bool) -> None:
    encoded = encode_reply(reply, asked(shown=shown))
    assert encoded.losses == ()
    assert decode_reply(encoded.body) == reply


@given(ANY_REPLIES, st.booleans(), st.data())
def test_a_stream_tells_what_the_whole_reply_does(reply: Reply, shown: bool, data: st.DataObject) -> None:
    around = asked(shown=shown)
    whole = encode_reply(reply, around)
    streamed = events(data.draw(cut_pieces(reply)), around)
    assert fold(decode_stream(streamed)) == decode_reply(whole.body)


@given(ANY_REPLIES, st.booleans())
def test_a_stream_and_the_whole_reply_lose_the_same(reply: Reply, shown: bool) -> None:
    encoder = Encoder(asked(shown=shown))
    for piece in pieces(reply):
        encoder.feed(piece)
    whole = encode_reply(reply, asked(shown=shown))
    assert sorted(encoder.losses, key=repr) == sorted(whole.losses, key=repr)


@given(ANY_REPLIES, st.data())
def test_any_cutting_gives_the_same_events(reply: Reply, data: st.DataObject) -> None:
    whole = events(pieces(reply), asked(shown=True))
    stream = b"".join(whole)
    places = sorted(data.draw(st.sets(st.integers(0, len(stream)), max_size=8)) | {0, len(stream)})
    splitter = EventSplitter()
    assert [event for start, end in pairwise(places) for event in splitter.feed(stream[start:end])] == whole
