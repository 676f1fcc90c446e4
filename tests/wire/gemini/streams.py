"""Streams of this API for the tests."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec

from polarproxy.wire.gemini.stream import Encoder
from polarproxy.wire.neutral.request import Reasoning, Request
from polarproxy.wire.sse import EventSplitter, event_data
from tests.wire.neutral.strategies import envelope

if TYPE_CHECKING:
    from collections.abc import Iterable

    from polarproxy.wire.neutral.reply import Envelope, Piece
    from polarproxy.wire.neutral.request import Tool


def asked(*, shown: bool, tools: tuple[Tool, ...] = ()) -> Envelope:
    """Around the answer to a client that asks to see thoughts, or does not."""
    reasoning = Reasoning(shown=True) if shown else None
    return replace(envelope(), request=Request("asked-model", (), tools=tools, reasoning=reasoning))


def events(pieces: Iterable[Piece], around: Envelope) -> list[bytes]:
    """The stream as whole events."""
    encoder, splitter = Encoder(around), EventSplitter()
    found = [event for piece in pieces for event in splitter.feed(encoder.feed(piece))]
    assert splitter.rest() == b""
    return found


def chunks(pieces: Iterable[Piece], around: Envelope) -> list[dict[str, Any]]:
    """What the events of the stream say."""
    return [msgspec.json.decode(event_data(event) or b"") for event in events(pieces, around)]
