"""The canned engine: vLLM's bytes at next to no cost, so that the proxies are what is measured.

`python -m tests.bench.engine [SIZE …]` builds all replies of those sizes, listens on a free loopback port, prints the
port on one line and serves until its standard input ends. Which reply to give stands in the request's `user` field
(see `canned.request_template`), found by a byte search: nothing is parsed, nothing is rendered.
"""

from __future__ import annotations

import asyncio
import itertools
import re
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import uvloop

from tests.bench.canned import MODEL, SIZES, conversation
from tests.bench.http1 import MessageReader
from tests.bench.reply import StreamedReply, WholeReply, streamed_reply, whole_reply

if TYPE_CHECKING:
    from collections.abc import Iterator

_MARK = re.compile(rb'"user":\s*"bench:([^:"]+):(\d+):(\d+):(\d+):(\d+)"')
_STREAM = re.compile(rb'"stream":\s*true')
# The `user` and `stream` fields stand after the messages; a proxy may have appended some fields of its own.
_TAIL_BYTES = 1_000
# An unpaced stream yields to the loop after so many events, as an engine does between its steps.
_BURST = 8

_OK_JSON = b"HTTP/1.1 200 OK\r\nserver: uvicorn\r\ncontent-length: %d\r\ncontent-type: application/json\r\n\r\n"
_OK_SSE = (
    b"HTTP/1.1 200 OK\r\nserver: uvicorn\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
    b"transfer-encoding: chunked\r\n\r\n"
)
_NOT_FOUND = (
    b"HTTP/1.1 404 Not Found\r\nserver: uvicorn\r\ncontent-length: 22\r\ncontent-type: application/json\r\n\r\n"
    b'{"detail":"Not Found"}'
)
_GET = {
    b"/health": b"",
    b"/version": b'{"version":"0.32.0"}',
    b"/v1/models": (
        b'{"object":"list","data":[{"id":"%s","object":"model","created":1796010818,"owned_by":"vllm","root":"%s",'
        b'"parent":null,"max_model_len":262144}]}' % ((MODEL.encode(),) * 2)
    ),
}


@dataclass(frozen=True)
class Replies:
    """Every reply of the served sizes, by (size, variant, turn)."""

    whole: dict[tuple[bytes, int, int], WholeReply]
    streamed: dict[tuple[bytes, int, int], StreamedReply]


def build(names: list[str]) -> Replies:
    whole, streamed = {}, {}
    for name in names:
        size = SIZES[name]
        for variant in range(size.variants):
            for index, turn in enumerate(conversation(size, variant)):
                key = name.encode(), variant, index
                whole[key] = whole_reply(turn)
                streamed[key] = streamed_reply(turn)
    return Replies(whole, streamed)


class Engine(asyncio.Protocol):
    """One connection: one request at a time."""

    def __init__(self, replies: Replies, serial: Iterator[int]) -> None:
        self._replies = replies
        self._serial = serial
        self._reader = MessageReader(self._on_head, self._on_body, self._on_end)
        self._request_line = b""
        self._body: list[bytes] = []
        self._stream: _Stream | None = None
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop does not derive its transports from asyncio's.
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._reader.feed(data)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._stream:
            self._stream.stop()

    def pause_writing(self) -> None:
        if self._stream:
            self._stream.pause()

    def resume_writing(self) -> None:
        if self._stream:
            self._stream.resume()

    def _on_head(self, head: bytes) -> None:
        self._request_line = head[: head.find(b"\r\n")]
        self._body = []

    def _on_body(self, piece: bytes) -> None:
        self._body.append(piece)

    def _on_end(self) -> None:
        body = b"".join(self._body)
        tail = body[-_TAIL_BYTES:]
        mark = _MARK.search(tail)
        if mark is None:
            path = self._request_line.split(b" ")[1]
            answer = _GET.get(path)
            self._transport.write(_NOT_FOUND if answer is None else _OK_JSON % len(answer) + answer)
            return
        size, variant, turn, session, pace_us = mark.groups()
        key = size, int(variant), int(turn)
        reply_id = b"%016x" % next(self._serial)
        if _STREAM.search(tail):
            events = self._replies.streamed[key].events(reply_id, int(session))
            self._stream = _Stream(self._transport, events, int(pace_us) / 1e6)
            self._stream.start()
            return
        answer = self._replies.whole[key].body(reply_id, int(session))
        self._transport.write(_OK_JSON % len(answer) + answer)


class _Stream:
    """Writes the events of one reply; an event is one HTTP chunk, as uvicorn sends them."""

    def __init__(self, transport: asyncio.Transport, events: Iterator[bytes], pace: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport = transport
        self._events = events
        self._pace = pace
        self._paused = False
        self._timer: asyncio.Handle | None = None
        self._due = self._loop.time()

    def start(self) -> None:
        """The head, the role event and the first token leave together: an engine has both after its first step."""
        self._transport.write(_OK_SSE + _chunk(next(self._events)) + _chunk(next(self._events)))
        self._schedule()

    def stop(self) -> None:
        if self._timer:
            self._timer.cancel()
        self._timer = None

    def pause(self) -> None:
        self._paused = True

    def resume(self) -> None:
        self._paused = False
        if self._timer is None:
            self._schedule()

    def _schedule(self) -> None:
        self._due += self._pace
        self._timer = self._loop.call_at(self._due, self._step) if self._pace else self._loop.call_soon(self._step)

    def _step(self) -> None:
        self._timer = None
        for event in itertools.islice(self._events, 1 if self._pace else _BURST):
            if b'"finish_reason":"stop"' in event:
                self._finish(event)
                return
            self._transport.write(_chunk(event))
        if not self._paused:
            self._schedule()

    def _finish(self, last: bytes) -> None:
        self._transport.write(b"".join(map(_chunk, (last, *self._events))) + b"0\r\n\r\n")


def _chunk(event: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(event), event)


async def serve(names: list[str]) -> None:
    replies = build(names)
    serial = itertools.count(1)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Engine(replies, serial), "127.0.0.1", 0, backlog=1024)
    async with server:
        print(server.sockets[0].getsockname()[1], flush=True)
        await loop.run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    uvloop.run(serve(sys.argv[1:] or list(SIZES)))
