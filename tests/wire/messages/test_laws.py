"""Laws of this dialect: nothing that it can say is lost on the way out and in again."""

from __future__ import annotations

from dataclasses import replace

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from polarproxy.wire.messages.reply import decode_reply, encode_reply
from polarproxy.wire.messages.request import decode_request, encode_request
from polarproxy.wire.messages.stream import Encoder, decode_stream
from polarproxy.wire.neutral.reply import ArgumentsPiece, Envelope, Final, Finished, Piece, Reply, ToolBegin, fold
from polarproxy.wire.neutral.request import Message, Reasoning, Request, Thinking, ToolUse
from polarproxy.wire.sse import EventSplitter
from tests.wire.neutral.strategies import (
    argument_texts,
    cut_pieces,
    envelope,
    json_objects,
    media_parts,
    replies,
    requests,
)

few = settings(max_examples=60, deadline=None)

_MEDIA = media_parts(("image",), wildcard=True) | media_parts(("document",), names=True)


def _reasoning(drawn: Reasoning | None) -> Reasoning | None:
    """A budget says that there is thinking, and only what there is can be shown."""
    if drawn is None:
        return None
    enabled = True if drawn.budget is not None else drawn.enabled
    said = replace(drawn, enabled=enabled, shown=drawn.shown if enabled else None)
    return None if said == Reasoning() else said


def _sayable(request: Request) -> Request:
    """Whether calls may be parallel is said with a choice that allows calls."""
    chooses = request.tool_choice is not None and request.tool_choice.mode != "none"
    return replace(
        request,
        parallel_tool_calls=request.parallel_tool_calls if chooses else None,
        max_tokens=request.max_tokens or 1,
        reasoning=_reasoning(request.reasoning),
    )


SAYABLE = requests(
    developers=False,
    message_names=False,
    media=_MEDIA,
    namespaces=False,
    parameters="always",
    arguments="object",
    outputs=("schema",),
    output_details=False,
    efforts=("low", "medium", "high", "xhigh", "max"),
    members=("max_tokens", "temperature", "top_p", "top_k", "stop", "user", "parallel_tool_calls"),
    several_choices=False,
).map(_sayable)


@few
@given(SAYABLE)
def test_a_request_comes_back(request: Request) -> None:
    encoded = encode_request(request)
    decoded = decode_request(encoded.body)
    assert decoded.request == request
    assert (encoded.losses, decoded.losses) == ((), ())


@few
@given(SAYABLE)
def test_a_request_of_count_tokens_comes_back(request: Request) -> None:
    request = replace(request, max_tokens=None)
    assert decode_request(encode_request(request).body, counting=True).request == request


@few
@given(requests())
def test_what_a_request_loses_is_reported(request: Request) -> None:
    encoded = encode_request(request)
    again = decode_request(encoded.body, counting=True).request
    if not encoded.losses:
        assert again == replace(request, messages=_as_objects(request.messages), stream_usage=False)
    assert [tool.name for tool in again.tools] == [tool.name for tool in request.tools]
    assert again.extra == request.extra


def _as_objects(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """The messages with the arguments of calls as this dialect has them: nothing is `{}`."""
    return tuple(
        replace(
            message,
            parts=tuple(
                replace(part, arguments=part.arguments or "{}") if isinstance(part, ToolUse) else part
                for part in message.parts
            ),
        )
        for message in messages
    )


@few
@given(argument_texts())
def test_arguments_come_back_whatever_they_are(arguments: str) -> None:
    request = Request("m", (Message("assistant", (ToolUse("i", "n", arguments),)),))
    decoded = decode_request(encode_request(request).body, counting=True)
    assert decoded.request.messages == (Message("assistant", (ToolUse("i", "n", arguments or "{}"),)),)


@few
@given(st.dictionaries(st.sampled_from(("x_a", "min_p", "chat_template_kwargs")), json_objects()))
def test_unknown_members_survive(extra: dict[str, bytes]) -> None:
    body = {"max_tokens": 1, "messages": [{"role": "user", "content": "x"}]}
    body |= {name: msgspec.Raw(value) for name, value in extra.items()}
    decoded = decode_request(msgspec.json.encode(body))
    assert decoded.request.extra == extra
    assert decode_request(encode_request(decoded.request).body).request == decoded.request


_ONE = replies(several_choices=False, usage="always")
_EXACT = replies(
    several_choices=False,
    usage="always",
    arguments="object",
    finishes=("stop", "stop_sequence", "length", "tool_calls", "content_filter"),
)


@few
@given(_EXACT)
def test_a_reply_comes_back(reply: Reply) -> None:
    encoded = encode_reply(reply, envelope())
    assert decode_reply(encoded.body) == _counted(reply)
    assert encoded.losses == ()


def _counted(reply: Reply) -> Reply:
    """This dialect always tells how many tokens were cached."""
    assert reply.usage is not None
    cached = reply.usage.cached_tokens or 0
    prompt = max(reply.usage.prompt_tokens, cached)
    return replace(reply, usage=replace(reply.usage, cached_tokens=cached, prompt_tokens=prompt))


HIDING = envelope(Request("m", (), reasoning=Reasoning(True, shown=False)))


def _stream(pieces: list[Piece], around: Envelope | None = None) -> bytes:
    encoder = Encoder(around or envelope())
    return b"".join(encoder.feed(piece) for piece in pieces)


@few
@given(st.data())
def test_a_stream_tells_the_same_story_as_the_whole_reply(data: st.DataObject) -> None:
    reply = data.draw(_ONE)
    stream = _stream(data.draw(cut_pieces(reply)))
    whole = decode_reply(encode_reply(reply, envelope()).body)
    assert fold(decode_stream(EventSplitter().feed(stream))) == whole


@few
@given(st.data())
def test_reasoning_that_is_not_shown_comes_back_out_of_its_signature(data: st.DataObject) -> None:
    reply = data.draw(_EXACT)
    pieces = data.draw(cut_pieces(reply))
    body, stream = encode_reply(reply, HIDING).body, _stream(pieces, HIDING)
    assert b'"thinking_delta"' not in stream
    assert body.count(b'"thinking":"",') == sum(isinstance(part, Thinking) for part in reply.choices[0].parts)
    assert decode_reply(body) == fold(decode_stream(EventSplitter().feed(stream))) == _counted(reply)


@few
@given(st.data())
def test_interleaved_calls_tell_the_same_story(data: st.DataObject) -> None:
    """All calls begin, then their arguments come in any order, a character at a time.

    What follows a complete object in a call that was closed already is cut off, and reported.
    """
    texts = data.draw(st.lists(argument_texts(), min_size=1, max_size=3))
    pieces: list[Piece] = [ToolBegin(call, f"id{call}", "f") for call in range(len(texts))]
    left = list(texts)
    while any(left):
        call = data.draw(st.sampled_from([call for call, text in enumerate(left) if text]))
        pieces.append(ArgumentsPiece(call, left[call][0]))
        left[call] = left[call][1:]
    encoder = Encoder(envelope())
    stream = b"".join(encoder.feed(piece) for piece in [*pieces, Finished("tool_calls"), Final(None)])
    said = fold(decode_stream(EventSplitter().feed(stream))).choices[0].parts
    cut = {loss.where for loss in encoder.losses if "after the end" in loss.why}
    whole = [part.arguments if isinstance(part, ToolUse) else "" for part in said]
    expected = [
        whole[call] if f"content[{call}].input" in cut and text.startswith(whole[call]) else text or "{}"
        for call, text in enumerate(texts)
    ]
    assert said == tuple(ToolUse(f"id{call}", "f", text) for call, text in enumerate(expected))


@few
@given(st.data())
def test_any_cutting_of_the_bytes_gives_the_same_events(data: st.DataObject) -> None:
    stream = _stream(data.draw(cut_pieces(data.draw(_ONE))))
    splitter, events, start = EventSplitter(), [], 0
    for cut in [*sorted(data.draw(st.sets(st.integers(0, len(stream)), max_size=8))), len(stream)]:
        events += splitter.feed(stream[start:cut])
        start = cut
    assert events == EventSplitter().feed(stream)
    assert splitter.rest() == b""
