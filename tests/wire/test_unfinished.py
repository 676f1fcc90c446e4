"""A stream whose choice never ended, or that said nothing, ends in every dialect as the whole reply does (law 8)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polarproxy.model import Usage
from polarproxy.wire.bedrock import reply as bedrock
from polarproxy.wire.bedrock.stream import Encoder as BedrockEncoder
from polarproxy.wire.bedrock.stream import decode_stream as bedrock_stream
from polarproxy.wire.gemini import reply as gemini
from polarproxy.wire.gemini.stream import Encoder as GeminiEncoder
from polarproxy.wire.gemini.stream import decode_stream as gemini_stream
from polarproxy.wire.messages import reply as messages
from polarproxy.wire.messages.stream import Encoder as MessagesEncoder
from polarproxy.wire.messages.stream import decode_stream as messages_stream
from polarproxy.wire.neutral.reply import Begin, Final, Finished, Piece, fold
from polarproxy.wire.responses import reply as responses
from polarproxy.wire.responses.stream import Encoder as ResponsesEncoder
from polarproxy.wire.responses.stream import decode_stream as responses_stream
from polarproxy.wire.sse import EventSplitter
from tests.wire.neutral.strategies import cut_pieces, envelope, replies

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from polarproxy.wire.neutral.encoder import StreamEncoder
    from polarproxy.wire.neutral.reply import Envelope, Reply
    from polarproxy.wire.neutral.request import Encoded

    Way = tuple[
        Callable[[Envelope], StreamEncoder],
        Callable[[Iterable[bytes]], list[Piece]],
        Callable[[Reply, Envelope], Encoded],
        Callable[[bytes], Reply],
    ]

WAYS: dict[str, Way] = {
    "messages": (MessagesEncoder, messages_stream, messages.encode_reply, messages.decode_reply),
    "responses": (ResponsesEncoder, responses_stream, responses.encode_reply, responses.decode_reply),
    "gemini": (GeminiEncoder, gemini_stream, gemini.encode_reply, gemini.decode_reply),
    "bedrock": (BedrockEncoder, bedrock_stream, bedrock.encode_reply, bedrock.decode_reply),
}


def same_story(way: Way, stream: Sequence[Piece]) -> None:
    encoder_of, read_stream, encode, read = way
    encoder = encoder_of(envelope())
    told = b"".join(encoder.feed(piece) for piece in stream)
    events = [told] if way is WAYS["bedrock"] else EventSplitter().feed(told)
    whole = encode(fold(stream), envelope())
    assert fold(read_stream(events)) == read(whole.body)
    assert {loss.where for loss in encoder.losses} == {loss.where for loss in whole.losses}


@pytest.mark.parametrize("dialect", WAYS)
@settings(max_examples=25)
@given(data=st.data())
def test_a_choice_that_never_ended(dialect: str, data: st.DataObject) -> None:
    reply = data.draw(replies(arguments="object", usage="always", reasoning_tokens=False))
    stream = [piece for piece in data.draw(cut_pieces(reply)) if not isinstance(piece, Finished)]
    same_story(WAYS[dialect], stream)


@pytest.mark.parametrize("dialect", WAYS)
def test_a_reply_that_says_nothing_at_all(dialect: str) -> None:
    same_story(WAYS[dialect], [Begin(3), Final(Usage(3, 0))])
