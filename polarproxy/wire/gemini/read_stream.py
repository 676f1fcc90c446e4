"""Reading the events of `streamGenerateContent` as a client does.

For clients and for the laws; the proxy itself only writes streams of this dialect.
Source: Gemini API reference, `GenerateContentResponse`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from polarproxy.errors import BadReply, BadRequest
from polarproxy.wire.gemini.members import Members, read_body
from polarproxy.wire.gemini.reply import read_finish, read_usage
from polarproxy.wire.gemini.signature import read_signature
from polarproxy.wire.neutral.arguments import from_object
from polarproxy.wire.neutral.reply import (
    ArgumentsPiece,
    Begin,
    Final,
    Finished,
    TextPiece,
    ThinkingPiece,
    ToolBegin,
)
from polarproxy.wire.sse import event_data

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from polarproxy.model import Usage
    from polarproxy.wire.neutral.reply import Piece


@dataclass(slots=True)
class _Candidate:
    thought: str = ""
    """The thought since the last part that is none."""
    calls: int = 0
    ended: bool = False


def decode_stream(events: Iterable[bytes]) -> list[Piece]:
    """The pieces of a stream of server-sent events; raises `BadReply` when it tells an error, or stops before the end."""
    reader = _Reader()
    try:
        pieces = [piece for event in events for piece in reader.read(event)]
    except BadRequest as error:
        raise BadReply(f"not a chunk of the Gemini API: {error}") from error
    if not all(candidate.ended for candidate in reader.candidates.values()):
        raise BadReply("the stream stopped before the reply was over")
    return [*pieces, Final(reader.usage)]


class _Reader:
    def __init__(self) -> None:
        self.candidates: dict[int, _Candidate] = {}
        self.usage: Usage | None = None
        self._begun = False

    def read(self, event: bytes) -> Iterator[Piece]:
        """The pieces of one event; an error may also stand between events, without `data:`."""
        data = event_data(event) or event.strip()
        if not data or data.startswith(b":"):
            return
        chunk = read_body(data)
        error = chunk.message("error")
        if error is not None:
            raise BadReply(f"the stream failed: {error.text('message')}")
        usage = read_usage(chunk.message("usageMetadata"))
        self.usage = usage or self.usage
        if not self._begun:
            self._begun = True
            yield Begin(usage.prompt_tokens if usage else None, usage.cached_tokens if usage else None)
        for candidate in chunk.messages("candidates") or ():
            yield from self._candidate(candidate)

    def _candidate(self, candidate: Members) -> Iterator[Piece]:
        index = candidate.integer("index") or 0
        state = self.candidates.setdefault(index, _Candidate())
        content = candidate.message("content")
        for part in (content and content.messages("parts")) or ():
            yield from _part(part, state, index)
        reason = candidate.text("finishReason")
        if reason is not None:
            state.ended = True
            yield Finished(read_finish(reason, state.calls > 0), index=index)


def _part(part: Members, state: _Candidate, index: int) -> Iterator[Piece]:
    text = part.text("text")
    if part.flag("thought"):
        state.thought += text or ""
        if text:
            yield ThinkingPiece(text, index)
        return
    hidden = read_signature(part.text("thoughtSignature") or "").text
    if hidden is not None and hidden.startswith(state.thought) and hidden != state.thought:
        yield ThinkingPiece(hidden[len(state.thought) :], index)
    state.thought = ""
    if text:
        yield TextPiece(text, index)
    call = part.message("functionCall")
    if call is not None:
        yield ToolBegin(state.calls, call.text("id") or "", call.text("name") or "", index)
        yield ArgumentsPiece(state.calls, from_object(call.object("args") or b"{}"), index)
        state.calls += 1
