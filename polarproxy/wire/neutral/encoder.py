"""What every dialect's encoder of streams offers, so that the proxy can relay without knowing which dialect it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from polarproxy.model import Loss
    from polarproxy.wire.neutral.reply import Piece


class StreamEncoder(Protocol):
    """One reply on its way to one client."""

    losses: list[Loss]
    """What could not be said in this dialect so far."""

    def feed(self, piece: Piece) -> bytes:
        """The bytes that this piece is in the dialect; empty when it says nothing there. `Final` gives the stream's end."""
        ...

    def error(self, status: int, message: str) -> bytes:
        """What tells a client in the middle of a stream that it failed; the connection is reset after it. May be empty."""
        ...
