"""The laws of a dialect, drawn."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from polarproxy.wire.neutral.reply import Piece, Reply, fold
from polarproxy.wire.neutral.request import Message, Request, Tool
from polarproxy.wire.responses import freeform
from polarproxy.wire.responses.calls import SHELL_PARAMETERS
from polarproxy.wire.responses.reply import decode_reply, encode_reply
from polarproxy.wire.responses.request import decode_request, encode_request
from polarproxy.wire.responses.stream import Encoder, decode_stream
from polarproxy.wire.sse import EventSplitter, event_data
from tests.wire.neutral.strategies import EVERY_MEMBER, cut_pieces, json_objects, media_parts, replies, requests
from tests.wire.responses.bodies import envelope

TOOLS = (
    Tool("read_file", parameters=b"{}"),
    Tool("space__run", namespace="space", own_name="run"),
    Tool("a_b", "Reads.", own_name="a.b"),
)
BODY = encode_request(Request("m", (), tools=TOOLS)).body
NAMES = [tool.name for tool in TOOLS]
KINDS = (
    Tool("patch", "Edits.", freeform.PARAMETERS, kind="custom"),
    Tool(
        "local_shell", "Runs a program on the local machine and gives its output.", SHELL_PARAMETERS, kind="local_shell"
    ),
)

_MEDIA = (
    media_parts(("image",), wildcard=True, details=True)
    | media_parts(("document", "video"), urls=False, names=True)
    | media_parts(("audio",), urls=False)
)
_REQUESTS = requests(
    message_names=False,
    media=_MEDIA,
    result_errors=False,
    reasoning=("effort",),
    members=[member for member in EVERY_MEMBER if member not in ("n", "stream_usage")],
)


def joined(request: Request) -> Request:
    """With what the assistant says in a row as one message, as items have it."""
    messages: list[Message] = []
    for message in request.messages:
        last = messages[-1] if messages else None
        if last is not None and last.role == message.role == "assistant":
            messages[-1] = replace(last, parts=last.parts + message.parts)
        else:
            messages.append(message)
    return replace(request, messages=tuple(messages))


@settings(max_examples=60)
@given(_REQUESTS.map(joined))
def test_a_request_comes_back(request: Request) -> None:
    written = encode_request(request)
    assert written.losses == ()
    read = decode_request(written.body)
    assert (read.request, read.losses) == (request, ())


_REPLIES = replies(
    several_choices=False, tool_names=NAMES, finishes=("stop", "length", "tool_calls", "content_filter", "abort")
)


@settings(max_examples=60)
@given(_REPLIES)
def test_a_reply_comes_back(reply: Reply) -> None:
    written = encode_reply(reply, envelope(BODY))
    assert written.losses == ()
    assert decode_reply(written.body) == reply


@settings(max_examples=60)
@given(_REPLIES.flatmap(cut_pieces), st.data())
def test_the_stream_and_the_whole_reply_are_one(pieces: list[Piece], data: st.DataObject) -> None:
    encoder = Encoder(envelope(BODY))
    sent = b"".join(encoder.feed(piece) for piece in pieces)
    places = sorted(data.draw(st.sets(st.integers(0, len(sent)), max_size=5)) | {0, len(sent)})
    splitter = EventSplitter()
    events = [event for start, end in pairwise(places) for event in splitter.feed(sent[start:end])]
    assert (splitter.rest(), encoder.losses) == (b"", [])
    whole = encode_reply(fold(pieces), envelope(BODY)).body
    assert json.loads(event_data(events[-1]) or b"")["response"] == json.loads(whole)
    assert fold(decode_stream(events)) == decode_reply(whole)


@settings(max_examples=60)
@given(
    replies(
        several_choices=False, tool_names=[*NAMES, "patch", "local_shell"], finishes=("length", "tool_calls", "stop")
    ).flatmap(cut_pieces)
)
def test_it_is_so_for_tools_of_other_kinds(pieces: list[Piece]) -> None:
    around = envelope(encode_request(Request("m", (), tools=TOOLS + KINDS)).body)
    encoder = Encoder(around)
    events = EventSplitter().feed(b"".join(encoder.feed(piece) for piece in pieces))
    whole = encode_reply(fold(pieces), around)
    assert tuple(encoder.losses) == whole.losses
    assert fold(decode_stream(events)) == decode_reply(whole.body)


@settings(max_examples=60)
@given(st.dictionaries(st.sampled_from(("x_new", "min_p", "vllm_xargs")), json_objects()))
def test_unknown_members_survive(extra: dict[str, bytes]) -> None:
    members = b"".join(b',"%s":%s' % (name.encode(), value) for name, value in extra.items())
    read = decode_request(b'{"input":"hi"' + members + b"}").request
    assert read.extra == extra
    assert decode_request(encode_request(read).body).request == read
