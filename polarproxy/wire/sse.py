"""Server-sent events as bytes: cutting a stream into events without changing any of them.

Source: WHATWG HTML, "Server-sent events". Any cutting of the byte stream yields the same events, and the events joined
give the stream back; so what is relayed is what the engine sent.
"""

from __future__ import annotations

import re

DONE = b"[DONE]"
_EVENT_END = re.compile(rb"(?>\r\n|\n|\r)(?>\r\n|\n|\r)")
"""Two line ends in a row, each of any kind; atomic, so that CR LF is never taken for two."""


class EventSplitter:
    """Cuts a byte stream into complete events, each with its blank line."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, chunk: bytes) -> list[bytes]:
        """The events that `chunk` completes, in order."""
        data = self._rest + chunk if self._rest else chunk
        if b"\r" in data:
            return self._feed_any_newline(data)
        parts = data.split(b"\n\n")
        self._rest = parts.pop()
        return [part + b"\n\n" for part in parts]

    def _feed_any_newline(self, data: bytes) -> list[bytes]:
        events, start = [], 0
        for match in _EVENT_END.finditer(data):
            # The CR that ends a blank line may turn out to be the first half of CR LF: wait for the next byte.
            if match.end() == len(data) and data.endswith(b"\r"):
                break
            events.append(data[start : match.end()])
            start = match.end()
        self._rest = data[start:]
        return events

    def rest(self) -> bytes:
        """Bytes after the last complete event; not empty when the stream was cut inside an event."""
        return self._rest


def event_data(event: bytes) -> bytes | None:
    """The `data` of an event; None when it has none (a comment, a keep-alive)."""
    if event.startswith(b"data: ") and event.find(b"\n") == len(event) - 2 and b"\r" not in event:
        return event[6:-2]
    lines = [line[5:].removeprefix(b" ") for line in event.splitlines() if line.startswith(b"data:")]
    return b"\n".join(lines) if lines else None


def encode_event(data: bytes) -> bytes:
    """An event that carries `data`, which must not contain a line break."""
    return b"data: " + data + b"\n\n"
