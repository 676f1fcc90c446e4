"""The WebSocket transport of the Responses API: several turns on one connection, each of them a call like any other."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from aiohttp import WSMsgType, web

from polarproxy.errors import PolarproxyError
from polarproxy.proxy.generate import generate
from polarproxy.proxy.outlet import CLOSE_AFTER_FAILURE, SocketOutlet
from polarproxy.proxy.replies import refusal
from polarproxy.proxy.responses import Memory, with_earlier
from polarproxy.store.ids import new_id
from polarproxy.wire.neutral.reply import Envelope
from polarproxy.wire.responses import items
from polarproxy.wire.responses.request import decode_request
from polarproxy.wire.responses.response import context_of
from polarproxy.wire.responses.socket import prewarmed, read_create
from polarproxy.wire.surrogates import read_leniently

if TYPE_CHECKING:
    from collections.abc import Mapping

    from polarproxy.proxy.parts import Parts
    from polarproxy.proxy.visit import Said, Visit
    from polarproxy.wire.responses.items import Head

_WAITING_FRAMES = 64
"""Messages that may wait for the turn before them; with more, the client has to wait."""


def is_upgrade(headers: Mapping[str, str]) -> bool:
    """Whether a request wants to become a WebSocket."""
    return headers.get("Upgrade", "").lower() == "websocket"


async def serve_socket(parts: Parts, visit: Visit, http: web.Request) -> web.StreamResponse:
    """Takes turns until the client leaves."""
    socket = web.WebSocketResponse(max_msg_size=parts.settings.max_body_mb << 20)
    await socket.prepare(http)
    frames: asyncio.Queue[str | bytes | None] = asyncio.Queue(_WAITING_FRAMES)
    listening = asyncio.create_task(_listen(socket, frames))
    try:
        await _take_turns(parts, visit, socket, frames, listening)
    except ConnectionResetError:
        return socket  # the client is gone, which is recorded where there was something to record
    finally:
        listening.cancel()
    return socket


async def _listen(socket: web.WebSocketResponse, frames: asyncio.Queue[str | bytes | None]) -> None:
    """Ends when the client leaves; None is the last that comes."""
    async for message in socket:
        if message.type in (WSMsgType.TEXT, WSMsgType.BINARY):
            await frames.put(message.data)
    await frames.put(None)


async def _take_turns(
    parts: Parts,
    visit: Visit,
    socket: web.WebSocketResponse,
    frames: asyncio.Queue[str | bytes | None],
    listening: asyncio.Task[None],
) -> None:
    """One after the other. A client that leaves in the middle of a turn ends it, which frees the engine."""
    memory = Memory()
    while (frame := await frames.get()) is not None:
        turn = asyncio.create_task(_turn(parts, visit, socket, memory, frame))
        try:
            await asyncio.wait((turn, listening), return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not turn.done():
                turn.cancel()
                await asyncio.wait((turn,))
        if turn.cancelled():
            return
        if not turn.result():
            await socket.close(code=CLOSE_AFTER_FAILURE, message=b"the reply could not be finished")
            return


async def _turn(parts: Parts, visit: Visit, socket: web.WebSocketResponse, memory: Memory, frame: str | bytes) -> bool:
    """Answers one message; whether the socket can take another."""
    outlet = SocketOutlet(socket)
    try:
        body, mended = read_leniently(read_create, frame.encode() if isinstance(frame, str) else frame)
        head = items.read_head(body)
        outlet = SocketOutlet(socket, head.stream_id)
        said = await with_earlier(parts, visit, body, head, memory, sent=body if mended else None)
        if not head.generate:
            await _prewarm(outlet, memory, head, said)
            return True
        parts.stats.calls += 1
        carrier = await generate(parts, visit, outlet, said, keep_reply=True)
    except PolarproxyError as error:
        parts.stats.unreadable += 1
        await outlet.refuse(refusal(error), visit.route.dialect)
        return True
    await carrier.run()
    reply = carrier.exchange.asking.reply
    if reply is not None:
        own = items.input_items(said.whole, carrier.exchange.call_id)
        memory.remember(head.stream_id, f"resp_{carrier.exchange.call_id}", [*own, *items.output_items(reply)])
    return not outlet.failed


async def _prewarm(outlet: SocketOutlet, memory: Memory, head: Head, said: Said) -> None:
    """Nothing is generated and nothing recorded; what was sent is only what the next message continues from."""
    envelope = Envelope(
        id=new_id("c"),
        created=int(time.time()),
        model=head.model or "",
        request=decode_request(said.whole).request,
        context=context_of(said.body),
    )
    for frame in prewarmed(envelope, head.stream_id):
        await outlet.send(frame)
    memory.remember(head.stream_id, f"resp_{envelope.id}", items.input_items(said.whole, envelope.id))
