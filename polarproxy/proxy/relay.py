"""Relaying a stream: bytes go out as they come in, except the end, which waits until the call is stored.

The end is held back from the event in which the last choice says why it finished: a client that stops reading there has
seen the end as surely as one that waits for `[DONE]`.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from polarproxy.errors import BadReply, EngineUnreachable
from polarproxy.wire.sse import DONE, EventSplitter, encode_event, event_data

if TYPE_CHECKING:
    from polarproxy.engine.capture import Capture
    from polarproxy.engine.plan import ReplyReader
    from polarproxy.proxy.exchange import Exchange
    from polarproxy.proxy.http.answer import Answer
    from polarproxy.proxy.outlet import Outlet
    from polarproxy.proxy.speech import Speech

_ENDS = re.compile(rb'"finish_reason"[ \t\r\n]*+:[ \t\r\n]*+(?!null)')
"""Says why a choice ended, as far as can be told of what is not JSON."""


@dataclass(slots=True)
class StreamRelay:
    """One stream on its way from the engine to the client."""

    exchange: Exchange
    speech: Speech
    keep: bool = False
    """Whether the engine's events are kept, to recognise the conversation later."""
    kept: list[bytes] = field(default_factory=list)
    held: list[bytes] = field(default_factory=list)
    ended: bool = False
    """Whether the engine said that the stream is over."""
    wrote_at: float = field(default_factory=time.monotonic)
    """When the client was last sent something (monotonic clock)."""
    _ending: bool = False
    _splitter: EventSplitter = field(default_factory=EventSplitter)
    _reader: ReplyReader = field(init=False)
    _capture: Capture = field(init=False)
    _choices: int = field(init=False)

    def __post_init__(self) -> None:
        # Looked up once, and not for every event.
        self._reader, self._choices = self.exchange.plan.reader, self.exchange.choices
        self._capture = self._reader.capture

    async def run(self, upstream: Answer, client: Outlet) -> None:
        """Relays until the engine ends. What is left in `held` is for the caller to send, once the call is stored.

        Raises `EngineUnreachable`, `EngineTimeout` when the engine goes away in the middle, `BadReply` when it says
        something that cannot be translated, `ConnectionResetError` when the client goes away.
        """
        while not self.ended:
            chunk = await upstream.content.readany()
            if not chunk:
                return
            self.exchange.saw_bytes()
            out = self.feed(chunk)
            if out:
                self.wrote_at = time.monotonic()
                await client.write(out)

    def feed(self, chunk: bytes) -> bytes:
        """What the client may see now of the events that `chunk` completes."""
        out: list[bytes] = []
        for event in self._splitter.feed(chunk):
            said = self._say(event)
            # The end begins with the event that ends the last choice, also where the client's dialect has no word for it.
            if self._ending or self._is_end():
                self._ending = True
                self.held.append(said)
            elif said:
                out.append(said)
            if self.ended:
                break
        return out[0] if len(out) == 1 else b"".join(out)

    def finish(self) -> None:
        """The engine is through, whether it said so or not; raises `EngineUnreachable` when its reply is not finished."""
        capture = self._capture
        if capture.error is not None:
            return
        if capture.finished() < self._choices and (self.speech.translated or not self.ended):
            raise EngineUnreachable("the engine ended its stream before the reply was finished")
        if not self.ended:
            self.held.append(self.speech.done(b"", capture))

    def rest(self) -> bytes:
        """Bytes after the last whole event, when the stream ended inside one."""
        return self._splitter.rest()

    def _say(self, event: bytes) -> bytes:
        """What the client is to see of an event; empty when it is nothing."""
        data = event_data(event)
        if data is None:
            return self.speech.aside(event)
        capture = self._capture
        if data == DONE:
            self.ended = True
            return self.speech.done(event, capture)
        try:
            view = self._reader.event(data)
        except BadReply as error:
            self.exchange.lose_track(error)
            if self.speech.translated:
                raise
            # Another reader may understand it.
            self._ending = self._ending or _ENDS.search(data) is not None
            return self.speech.aside(event)
        if view is None:
            return b""
        if self.exchange.prompted is not None:
            self.exchange.prompted.hear(view)
        if self.keep:
            self.kept.append(event if view is data else encode_event(view))
        return self.speech.event(event, data, view, capture)

    def _is_end(self) -> bool:
        capture = self._capture
        return self.ended or capture.error is not None or capture.finished() >= self._choices
