"""What every engine module offers: a plan for one request, and a reader for its reply."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from polarproxy.engine.capture import Capture


@dataclass(frozen=True, slots=True)
class FollowUp:
    """One more request to the same engine, needed to know the exact ids of a reply."""

    path: str
    body: bytes


class ReplyReader:
    """Reads one reply, keeps what it says about tokens in `capture`, and returns what the client is to see."""

    def __init__(self, capture: Capture) -> None:
        self.capture = capture

    def event(self, data: bytes) -> bytes | None:
        """The `data` of one stream event, as the client is to see it; None when it is not for this client.

        Raises `BadReply` when it cannot be read.
        """
        raise NotImplementedError

    def body(self, data: bytes) -> bytes:
        """A whole reply, as the client is to see it; raises `BadReply` when it cannot be read."""
        raise NotImplementedError

    def follow_up(self) -> FollowUp | None:
        """What else must be asked after the last byte. None: nothing."""
        return None

    def answer(self, data: bytes) -> None:
        """Takes the reply to the follow-up; raises `BadReply` when it cannot be read."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How one request goes to the engine."""

    body: bytes
    stream: bool
    """Whether the engine is asked to stream. When the client wants a stream and the engine is not asked for one, the
    whole reply is cut into events afterwards."""
    reader: ReplyReader
