"""One keep-alive connection of the load client, cheap enough to share a core with the engine."""

from __future__ import annotations

import asyncio
import re
import time
from dataclasses import dataclass, field
from typing import cast

from tests.bench.http1 import MessageReader

# The send timestamp inside an event's content, see `reply._TIME`.
_TIME = re.compile(rb"t=(\d{19}) ")
_TIME_BYTES = 22
_TAIL_BYTES = 160


@dataclass
class Reply:
    """What the client saw of one reply. Times are CLOCK_MONOTONIC in ns."""

    sent: int
    status: int = 0
    body_bytes: int = 0
    tail: bytes = b""
    ended: int = 0
    # Of each timestamped event: arrival, and arrival minus the time it was sent. Empty for an unstreamed reply.
    arrivals: list[int] = field(default_factory=list)
    transits: list[int] = field(default_factory=list)

    def fault(self, *, streamed: bool) -> str | None:
        """Why this is not a complete answer; None when it is."""
        if self.status != 200:
            return f"status {self.status}: {self.tail!r}"
        if streamed and not self.tail.endswith(b"data: [DONE]\n\n"):
            return f"stream ended with {self.tail!r}"
        if not streamed and not self.tail.endswith(b"}"):
            return f"body ended with {self.tail!r}"
        return None


def request_head(port: int, api_key: str, body_bytes: int) -> bytes:
    """The headers an OpenAI SDK sends, near enough."""
    return (
        f"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAccept: application/json\r\n"
        f"Content-Type: application/json\r\nUser-Agent: OpenAI/Python 2.8.1\r\nX-Stainless-Lang: python\r\n"
        f"X-Stainless-Retry-Count: 0\r\nAuthorization: Bearer {api_key}\r\nContent-Length: {body_bytes}\r\n\r\n"
    ).encode()


class Connection(asyncio.Protocol):
    def __init__(self) -> None:
        self._reader = MessageReader(self._on_head, self._on_body, self._on_end)
        self._reply = Reply(0)
        self._carry = b""
        self._streamed = False
        self._done: asyncio.Future[Reply]
        self._transport: asyncio.Transport

    @classmethod
    async def open(cls, port: int) -> Connection:
        _, connection = await asyncio.get_running_loop().create_connection(cls, "127.0.0.1", port)
        return connection

    async def exchange(self, request: bytes, *, streamed: bool) -> Reply:
        """Sends one request and waits for the end of its reply. Raises ConnectionError when the peer hangs up."""
        self._done = asyncio.get_running_loop().create_future()
        self._carry = b""
        self._streamed = streamed
        self._reply = Reply(time.monotonic_ns())
        self._transport.write(request)
        return await self._done

    def close(self) -> None:
        self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop does not derive its transports from asyncio's.
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._reader.feed(data)

    def connection_lost(self, exc: Exception | None) -> None:
        if hasattr(self, "_done") and not self._done.done():
            self._done.set_exception(ConnectionError(f"the peer hung up: {exc}"))

    def _on_head(self, head: bytes) -> None:
        self._reply.status = int(head[9:12])

    def _on_body(self, piece: bytes) -> None:
        reply = self._reply
        reply.body_bytes += len(piece)
        reply.tail = (reply.tail + piece)[-_TAIL_BYTES:]
        if self._streamed:
            self._take_timestamps(piece)

    def _take_timestamps(self, piece: bytes) -> None:
        now = time.monotonic_ns()
        text = self._carry + piece
        end = 0
        for found in _TIME.finditer(text):
            self._reply.arrivals.append(now)
            self._reply.transits.append(now - int(found[1]))
            end = found.end()
        self._carry = text[max(end, len(text) - _TIME_BYTES + 1) :]

    def _on_end(self) -> None:
        self._reply.ended = time.monotonic_ns()
        if not self._done.done():
            self._done.set_result(self._reply)
