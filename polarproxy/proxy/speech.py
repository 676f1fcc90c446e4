"""How the engine's reply reaches the client: in the engine's own words, or in those of another dialect."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

from multidict import CIMultiDict

from polarproxy.model import Loss, Usage
from polarproxy.proxy import headers
from polarproxy.proxy.dialects import CHAT_KEEPALIVE
from polarproxy.wire.chat.errors import read_error
from polarproxy.wire.chat.fields import renamed
from polarproxy.wire.chat.stream import PieceReader
from polarproxy.wire.chat.unfold import unfold
from polarproxy.wire.neutral.reply import Begin, Final, fold
from polarproxy.wire.sse import DONE, encode_event, event_data

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from polarproxy.engine.capture import Capture
    from polarproxy.proxy.dialects import Spoken
    from polarproxy.wire.neutral.encoder import StreamEncoder
    from polarproxy.wire.neutral.reply import Envelope, Piece

_SSE = "text/event-stream; charset=utf-8"


class Speech(Protocol):
    """One reply on its way to one client. `view` is the engine's JSON as a client of the engine itself would see it."""

    streamed: bool
    """Whether the client wants a stream."""
    keep: bool
    """Whether the whole reply is wanted at the end: for a client that wants no stream, or to be stored."""
    keepalive: bytes | None
    translated: bool
    """Whether the engine's words are put into another dialect's: then those that cannot be read cannot be passed on."""

    def head(self, engine: Mapping[str, str]) -> CIMultiDict[str]:
        """The headers of the answer, given the engine's."""
        ...

    def event(self, event: bytes, data: bytes, view: bytes, capture: Capture) -> bytes:
        """One event of the engine's stream. `event` is how it came, `data` what it holds; `view` may be the very same."""
        ...

    def aside(self, event: bytes) -> bytes:
        """An event that says nothing (a comment), or one that cannot be read."""
        ...

    def done(self, event: bytes, capture: Capture) -> bytes:
        """The end of the engine's stream."""
        ...

    def rest(self, rest: bytes) -> bytes:
        """What came after the last whole event."""
        ...

    def whole(self, view: bytes, capture: Capture) -> bytes:
        """All that the client gets of a reply that came in one piece."""
        ...

    def folded(self) -> bytes:
        """The body for a client that wants no stream, of a reply that was streamed."""
        ...

    def failure(self, status: int, message: str) -> bytes:
        """What a client in the middle of a stream is told before its connection is cut; may be empty."""
        ...


@dataclass(slots=True)
class Native:
    """The engine's own words; bytes pass as they are, but for the name of the model where the client used another."""

    streamed: bool
    unfold: Callable[[bytes], list[bytes]]
    """Cuts a whole reply into the events of a stream, for engines that cannot stream what is needed."""
    asked_model: bytes | None = None
    """The model's name as the client wrote it, as JSON. None: it is the name that the engine uses."""
    keep: bool = False
    keepalive: bytes | None = CHAT_KEEPALIVE
    translated: bool = False

    def head(self, engine: Mapping[str, str]) -> CIMultiDict[str]:
        if self.streamed and not engine.get("Content-Type", "").startswith("text/event-stream"):
            return CIMultiDict({"Content-Type": _SSE})
        return headers.to_client(engine)

    def event(self, event: bytes, data: bytes, view: bytes, capture: Capture) -> bytes:
        if self.asked_model is not None:
            return encode_event(renamed(view, self.asked_model))
        return event if view is data else encode_event(view)

    def aside(self, event: bytes) -> bytes:
        return event

    def done(self, event: bytes, capture: Capture) -> bytes:
        return event

    def rest(self, rest: bytes) -> bytes:
        return rest

    def whole(self, view: bytes, capture: Capture) -> bytes:
        if self.asked_model is not None:
            view = renamed(view, self.asked_model)
        return b"".join(self.unfold(view)) if self.streamed else view

    def folded(self) -> bytes:
        raise AssertionError("the engine streams only to clients that asked it to")

    def failure(self, status: int, message: str) -> bytes:
        """Nothing: an engine that goes away says nothing either, and harnesses ask again after a reset."""
        return b""


@dataclass(slots=True)
class Translated:
    """The reply in the client's dialect, piece by piece as the engine streams it."""

    streamed: bool
    spoken: Spoken
    envelope: Envelope
    keep: bool
    keepalive: bytes | None = None
    translated: bool = True
    losses: list[Loss] = field(default_factory=list)
    _reader: PieceReader = field(default_factory=PieceReader)
    _encoder: StreamEncoder = field(init=False)
    _pieces: list[Piece] = field(default_factory=list)
    _whole: bytes | None = None
    """The whole reply. None: it was not made yet."""

    def __post_init__(self) -> None:
        self.keepalive = self.spoken.keepalive
        self._encoder = self.spoken.stream(self.envelope)
        self._encoder.losses = self.losses

    def head(self, engine: Mapping[str, str]) -> CIMultiDict[str]:
        name, prefix = self.spoken.request_id
        kind = self.spoken.stream_type if self.streamed else "application/json"
        return CIMultiDict({"Content-Type": kind, name: prefix + self.envelope.id})

    def event(self, event: bytes, data: bytes, view: bytes, capture: Capture) -> bytes:
        if capture.error is not None:
            return self.failure(*read_error(capture.error))
        return self._say(self._reader.feed(view), capture)

    def aside(self, event: bytes) -> bytes:
        return b""

    def done(self, event: bytes, capture: Capture) -> bytes:
        # An engine that reports an error says that it is done all the same; the client was told of the failure.
        return b"" if capture.error is not None else self._say([self._reader.end()], capture)

    def rest(self, rest: bytes) -> bytes:
        return b""

    def whole(self, view: bytes, capture: Capture) -> bytes:
        said = b"".join(
            self.done(event, capture) if data == DONE else self.event(event, data, data, capture)
            for event in unfold(view, usage=True)
            if (data := event_data(event)) is not None
        )
        return said if self.streamed else self.folded()

    def folded(self) -> bytes:
        if self._whole is None:
            encoded = self.spoken.reply(fold(self._pieces), self.envelope)
            if not self.streamed:
                self.losses.extend(encoded.losses)
            self._whole = encoded.body
        return self._whole

    def failure(self, status: int, message: str) -> bytes:
        return self._encoder.error(status, message) if self.spoken.says_failure else b""

    def _say(self, pieces: Iterable[Piece], capture: Capture) -> bytes:
        out = []
        for found in pieces:
            piece = _completed(found, capture)
            if self.keep:
                self._pieces.append(piece)
            if self.streamed:
                out.append(self._encoder.feed(piece))
        return b"".join(out)


def _completed(piece: Piece, capture: Capture) -> Piece:
    """With what the tokens tell and the engine's words do not (yet)."""
    if isinstance(piece, Begin) and piece.prompt_tokens is None and capture.prompt is not None:
        return replace(piece, prompt_tokens=len(capture.prompt))
    if isinstance(piece, Final) and piece.usage is None and capture.prompt is not None:
        sampled = sum(len(choice.token_ids()) for choice in capture.choices.values())
        return Final(Usage(len(capture.prompt), sampled))
    return piece
