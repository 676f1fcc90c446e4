"""The reply of `streamGenerateContent`, chunk by chunk: each a reply of its own that adds to the ones before.

Two framings: server-sent events (`alt=sse`), and one JSON array that grows. A call has no partial form here, and Gemini CLI
runs each call that it receives, also of a reply that is cut afterwards: calls, and what comes after one, wait for the end of
the reply (`InOrder`). Text before them leaves at once.

The encoder can tell a failure in the middle as an error object between the events, as Google's own service does. The proxy
resets the connection instead, since Gemini CLI then asks again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec
from msgspec import UNSET, UnsetType

from polarproxy.wire.gemini.errors import encode_error
from polarproxy.wire.gemini.read_stream import decode_stream as decode_stream
from polarproxy.wire.gemini.read_tools import own_names
from polarproxy.wire.gemini.reply import finish_reason, malformed_arguments, shows_thoughts, usage_metadata
from polarproxy.wire.gemini.shapes import Candidate, Content, Part, Response, UsageMetadata
from polarproxy.wire.gemini.signature import sign
from polarproxy.wire.gemini.write_parts import call_part
from polarproxy.wire.neutral.in_order import InOrder
from polarproxy.wire.neutral.reply import (
    Begin,
    Final,
    Finished,
    TextPiece,
    ThinkingPiece,
    ToolBegin,
)

if TYPE_CHECKING:
    from polarproxy.model import Loss
    from polarproxy.wire.neutral.in_order import First
    from polarproxy.wire.neutral.reply import Envelope, Finish, Piece


@dataclass(slots=True)
class _Lane:
    """One choice on its way."""

    thoughts: list[str] = field(default_factory=list)
    """Reasoning that no part carries the signature of yet."""
    order: InOrder = field(default_factory=lambda: InOrder(live=False))
    finish: Finish = "abort"

    def signature(self) -> str | UnsetType:
        """The signature that the next part carries."""
        thought = "".join(self.thoughts)
        self.thoughts.clear()
        return sign(thought) if thought else UNSET


class Encoder:
    """Writes one reply as server-sent events, or as the elements of one JSON array."""

    def __init__(self, envelope: Envelope, array: bool = False) -> None:
        self.losses: list[Loss] = []
        self._envelope = envelope
        self._own = own_names(envelope.request.tools)
        self._shown = shows_thoughts(envelope)
        self._array = array
        self._begun = False
        self._usage: UsageMetadata | UnsetType = UNSET
        self._lanes: dict[int, _Lane] = {}

    def feed(self, piece: Piece) -> bytes:
        """The chunks that a piece completes; empty for one that says nothing yet."""
        match piece:
            case Begin():
                self._begin(piece)
                return b""
            case Final():
                return self._final(piece)
        lane = self._lanes.setdefault(piece.index, _Lane())
        if isinstance(piece, Finished):
            lane.finish = piece.finish
            return b""
        if not lane.order.feed(piece):
            return b""
        # A call is never said at once.
        assert isinstance(piece, (TextPiece, ThinkingPiece))
        return self._say(piece, piece.text, lane)

    def _say(self, first: First, text: str, lane: _Lane) -> bytes:
        """The chunk of a part, or of a piece of one; `text`: what is said, or the arguments of a call."""
        match first:
            case ThinkingPiece():
                lane.thoughts.append(text)
                return self._part(first.index, Part(text=text, thought=True)) if self._shown else b""
            case TextPiece():
                return self._part(first.index, Part(text=text, thought_signature=lane.signature()))
            case ToolBegin():
                name = self._own.get(first.name, first.name)
                part, malformed = call_part(first.id, name, text, lane.signature())
                if malformed:
                    self.losses.append(malformed_arguments(first.index, first.name))
                return self._part(first.index, part)

    def error(self, status: int, message: str) -> bytes:
        """An error object between the events, or as the array's last element."""
        error = encode_error(status, message)
        return self._element(error) + b"\n]\n" if self._array else error + b"\r\n\r\n"

    def _begin(self, piece: Begin) -> None:
        if piece.prompt_tokens is not None:
            self._usage = UsageMetadata(
                prompt_token_count=piece.prompt_tokens,
                candidates_token_count=UNSET,
                total_token_count=piece.prompt_tokens,
                cached_content_token_count=UNSET if piece.cached_tokens is None else piece.cached_tokens,
            )

    def _part(self, index: int, part: Part) -> bytes:
        return self._chunk([Candidate(Content([part], "model"), UNSET, index)], self._usage)

    def _final(self, piece: Final) -> bytes:
        """The last chunk: how each choice ended, and the counts."""
        waited = b"".join(
            self._say(first, text, lane) for lane in self._lanes.values() for first, text in lane.order.parts()
        )
        candidates = []
        for index, lane in sorted(self._lanes.items()):
            reason, untold = finish_reason(lane.finish, index)
            self.losses.extend(untold)
            signature = UNSET if self._shown else lane.signature()
            candidates.append(Candidate(Content([Part(text="", thought_signature=signature)], "model"), reason, index))
        usage = self._usage if piece.usage is None else usage_metadata(piece.usage)
        return waited + self._chunk(candidates, usage) + (b"\n]\n" if self._array else b"")

    def _chunk(self, candidates: list[Candidate], usage: UsageMetadata | UnsetType) -> bytes:
        data = msgspec.json.encode(Response(candidates, usage, self._envelope.model, self._envelope.id))
        if self._array:
            return self._element(data)
        # The SDK of Gemini CLI takes these two for line ends; in JSON they stand in strings only.
        line = data.replace(b"\xe2\x80\xa8", b"\\u2028").replace(b"\xe2\x80\xa9", b"\\u2029")
        return b"data: " + line + b"\r\n\r\n"

    def _element(self, data: bytes) -> bytes:
        before = b"\n,\r\n" if self._begun else b"["
        self._begun = True
        return before + data
