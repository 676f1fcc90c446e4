"""Between an agent and the proxy, a server that passes everything on as it comes and remembers what the agent sent."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
from aiohttp import web
from yarl import URL

_OURS_TO_SAY = frozenset({"host", "connection", "upgrade", "transfer-encoding", "content-length", "keep-alive"})
_OPENING = "sec-websocket-"
_READ_S = 0.5


@dataclass
class Sent:
    """A request of an agent, or a message on its socket (method `SOCKET`, with the headers of the socket's opening)."""

    method: str
    path: str
    """With its query string, as it was sent."""
    headers: tuple[tuple[str, str], ...]
    body: bytes
    reply: Any = None
    """What a message on a socket was answered with, for what follows names it. None: nothing, or it was no message."""


class Tap:
    """Passes on to `base`; `sent` has everything in the order of arrival."""

    def __init__(self, base: str) -> None:
        self.sent: list[Sent] = []
        self._base, self._http = base, aiohttp.ClientSession(auto_decompress=False)
        app = web.Application(client_max_size=64 << 20)
        app.router.add_route("*", "/{path:.*}", self._pass)
        self._runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)

    async def open(self) -> str:
        """The address to give to an agent."""
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        host, port = self._runner.addresses[0][:2]
        return f"http://{host}:{port}"

    async def close(self) -> None:
        await self._runner.cleanup()
        await self._http.close()

    async def _pass(self, asked: web.Request) -> web.StreamResponse:
        sent = Sent(asked.method, asked.rel_url.raw_path_qs, tuple(asked.headers.items()), await asked.read())
        self.sent.append(sent)
        url = URL(self._base + sent.path, encoded=True)
        said = {name: value for name, value in sent.headers if name.lower() not in _OURS_TO_SAY}
        if asked.headers.get("upgrade", "").lower() == "websocket":
            kept = {name: value for name, value in said.items() if not name.lower().startswith(_OPENING)}
            return await self._pass_messages(asked, sent, url, kept)
        async with self._http.request(sent.method, url, headers=said, data=sent.body or None) as reply:
            head = {name: value for name, value in reply.headers.items() if name.lower() not in _OURS_TO_SAY}
            back = web.StreamResponse(status=reply.status, headers=head)
            await back.prepare(asked)
            held = b""
            try:
                async for chunk in reply.content.iter_any():
                    await back.write(held)
                    held = chunk
                await back.write(held)
                await back.write_eof()
            except aiohttp.ClientError:
                # What an agent makes of a reply that breaks off depends on what it has read until then: let it read.
                await asyncio.sleep(_READ_S)
                await back.write(held)
                if asked.transport is not None:
                    asked.transport.close()
            return back

    async def _pass_messages(
        self, asked: web.Request, opening: Sent, url: URL, headers: dict[str, str]
    ) -> web.StreamResponse:
        near = web.WebSocketResponse(max_msg_size=0)
        async with self._http.ws_connect(url, headers=headers, max_msg_size=0) as far:
            await near.prepare(asked)
            messages: list[Sent] = []
            answers = asyncio.create_task(_answers(far, near, messages))
            async for message in near:
                messages.append(Sent("SOCKET", opening.path, opening.headers, str(message.data).encode()))
                self.sent.append(messages[-1])
                await far.send_str(message.data)
            await far.close()
            await answers
        return near


async def _answers(far: aiohttp.ClientWebSocketResponse, near: web.WebSocketResponse, messages: list[Sent]) -> None:
    """The agent sends the next message of a socket once the last one is answered."""
    async for message in far:
        event = json.loads(message.data)
        if event["type"] == "response.completed":
            messages[-1].reply = {name: event["response"][name] for name in ("id", "output")}
        await near.send_str(message.data)


@asynccontextmanager
async def tapped(base: str) -> AsyncIterator[tuple[str, list[Sent]]]:
    """The address of a new tap before `base`, and what it sees."""
    tap = Tap(base)
    address = await tap.open()
    try:
        yield address, tap.sent
    finally:
        await tap.close()
