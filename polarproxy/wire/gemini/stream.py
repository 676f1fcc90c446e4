"""The reply of `streamGenerateContent`, chunk by chunk: each a reply of its own that adds to the ones before.

Two framings: server-sent events (`alt=sse`), and one JSON array that grows. A call has no partial form here, so it is said
when its arguments are complete; all else leaves at once.

A failure in the middle is an error object between the events and not inside of one, as Google's own service tells it: the
SDKs for JavaScript and Python raise it from there, and the former takes one inside an event for an empty chunk.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec
from msgspec import UNSET, UnsetType

from polarproxy.model import Loss
from polarproxy.wire.gemini.errors import encode_error
from polarproxy.wire.gemini.read_stream import decode_stream as decode_stream
from polarproxy.wire.gemini.read_tools import own_names
from polarproxy.wire.gemini.reply import finish_reason, malformed_arguments, shows_thoughts, usage_metadata
from polarproxy.wire.gemini.shapes import Candidate, Content, Part, Response, UsageMetadata
from polarproxy.wire.gemini.signature import sign
from polarproxy.wire.gemini.write_parts import call_part
from polarproxy.wire.neutral.reply import (
    ArgumentsPiece,
    Begin,
    Final,
    Finished,
    TextPiece,
    ThinkingPiece,
    ToolBegin,
)

if TYPE_CHECKING:
    from polarproxy.wire.neutral.reply import Envelope, Finish, Piece


@dataclass(slots=True)
class _Lane:
    """One choice on its way."""

    thoughts: list[str] = field(default_factory=list)
    """Reasoning that no part carries the signature of yet."""
    call: ToolBegin | None = None
    """A call whose arguments are still coming."""
    arguments: list[str] = field(default_factory=list)
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
        match piece:
            case ArgumentsPiece():
                self._add_arguments(piece, lane)
                return b""
            case Finished():
                lane.finish = piece.finish
                return self._complete_call(lane)
            case ToolBegin():
                completed = self._complete_call(lane)
                lane.call = piece
                return completed
            case ThinkingPiece():
                completed = self._complete_call(lane)
                lane.thoughts.append(piece.text)
                return completed + (
                    self._part(piece.index, Part(text=piece.text, thought=True)) if self._shown else b""
                )
            case TextPiece():
                completed = self._complete_call(lane)
                return completed + self._part(piece.index, Part(text=piece.text, thought_signature=lane.signature()))

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

    def _add_arguments(self, piece: ArgumentsPiece, lane: _Lane) -> None:
        if lane.call is not None and lane.call.call == piece.call:
            lane.arguments.append(piece.text)
        else:
            where = f"candidates[{piece.index}].functionCall"
            self.losses.append(
                Loss(where, f"arguments of call {piece.call} came after it had been sent: {piece.text!r}")
            )

    def _complete_call(self, lane: _Lane) -> bytes:
        """The chunk of the call that is complete now, if there is one."""
        call = lane.call
        if call is None:
            return b""
        name = self._own.get(call.name, call.name)
        part, malformed = call_part(call.id, name, "".join(lane.arguments), lane.signature())
        if malformed:
            self.losses.append(malformed_arguments(call.index, call.name))
        lane.call = None
        lane.arguments.clear()
        return self._part(call.index, part)

    def _part(self, index: int, part: Part) -> bytes:
        return self._chunk([Candidate(Content([part], "model"), UNSET, index)], self._usage)

    def _final(self, piece: Final) -> bytes:
        """The last chunk: how each choice ended, and the counts."""
        completed = b"".join(self._complete_call(lane) for lane in self._lanes.values())
        candidates = []
        for index, lane in sorted(self._lanes.items()):
            reason, untold = finish_reason(lane.finish, index)
            self.losses.extend(untold)
            signature = UNSET if self._shown else lane.signature()
            candidates.append(Candidate(Content([Part(text="", thought_signature=signature)], "model"), reason, index))
        usage = self._usage if piece.usage is None else usage_metadata(piece.usage)
        return completed + self._chunk(candidates, usage) + (b"\n]\n" if self._array else b"")

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
