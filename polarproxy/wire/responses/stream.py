"""Replies as server-sent events.

Source: OpenAI API reference, Responses, "Streaming events". `decode_stream` reads them, in `read_stream`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from polarproxy.wire.neutral.reply import Begin, Final, Finished
from polarproxy.wire.responses import events
from polarproxy.wire.responses.output import Output
from polarproxy.wire.responses.read_stream import decode_stream
from polarproxy.wire.responses.reply import WHOLE, end_losses, other_choice
from polarproxy.wire.responses.response import begun, ended, failed

if TYPE_CHECKING:
    from collections.abc import Iterable

    from polarproxy.model import Loss
    from polarproxy.wire.neutral.reply import Envelope, Piece
    from polarproxy.wire.responses.events import Event, OfResponse
    from polarproxy.wire.responses.response import Response, Status

__all__ = ["Encoder", "decode_stream"]

_ENDS: dict[Status, type[OfResponse]] = {
    "completed": events.Completed,
    "incomplete": events.IncompleteResponse,
    "failed": events.Failed,
}


class Encoder:
    """One reply as the events of one stream, numbered from 0."""

    def __init__(self, envelope: Envelope) -> None:
        self._envelope = envelope
        self.losses: list[Loss] = []
        self._output = Output(envelope.id, envelope.request.tools)
        self._others: set[int] = set()
        """Choices that have no place here, as far as they were seen."""
        self._finished: Finished | None = None
        self._sent = 0

    def feed(self, piece: Piece) -> bytes:
        """The events that a piece is; the first piece opens the response, `Final` ends it."""
        said = [*self._open(), *self._events(piece)]
        self.losses += self._output.take_losses()
        return self._send(said)

    def error(self, status: int, message: str) -> bytes:
        """The event that ends a response which failed."""
        response = failed(self._envelope, status, message, self._output.items)
        return self._send([*self._open(), events.Failed(response=response)])

    def _open(self) -> list[Event]:
        if self._sent:
            return []
        response = begun(self._envelope)
        return [events.Created(response=response), events.InProgress(response=response)]

    def _events(self, piece: Piece) -> list[Event]:
        match piece:
            case Begin():
                return []
            case Final():
                return self._end(piece)
            case _ if piece.index:
                if piece.index not in self._others:
                    self._others.add(piece.index)
                    self.losses.append(other_choice(piece.index))
                return []
            case Finished():
                self._finished = piece
                self.losses += end_losses(piece.finish, piece.stop_sequence)
                return self._output.end(whole=piece.finish in WHOLE)
            case _:
                return self._output.add(piece)

    def _end(self, final: Final) -> list[Event]:
        finish = self._finished.finish if self._finished else "abort"
        left = self._output.end(whole=False)
        response: Response = ended(self._envelope, finish, self._output.items, final.usage)
        return [*left, _ENDS[response.status](response=response)]

    def _send(self, said: Iterable[Event]) -> bytes:
        return b"".join(self._frame(event) for event in said)

    def _frame(self, event: Event) -> bytes:
        event.sequence_number = self._sent
        self._sent += 1
        name = str(event.__struct_config__.tag).encode()
        return b"event: " + name + b"\ndata: " + msgspec.json.encode(event) + b"\n\n"
