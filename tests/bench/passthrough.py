"""The least that relays a request with aiohttp on both sides: the floor for a Python proxy that records nothing.

`python -m tests.bench.passthrough UPSTREAM` prints its port and serves until its standard input ends.
"""

from __future__ import annotations

import asyncio
import sys

import uvloop
from aiohttp import ClientSession, ClientTimeout, TCPConnector, web

_HOP_BY_HOP = frozenset({"connection", "transfer-encoding", "content-length", "keep-alive", "date", "server"})


async def serve(upstream: str) -> None:
    connector = TCPConnector(limit=0)
    async with ClientSession(upstream, connector=connector, auto_decompress=False, timeout=ClientTimeout()) as client:

        async def relay(request: web.BaseRequest) -> web.StreamResponse:
            body = await request.read()
            headers = {k: v for k, v in request.headers.items() if k.lower() not in _HOP_BY_HOP and k.lower() != "host"}
            async with client.request(request.method, request.raw_path, data=body, headers=headers) as reply:
                response = web.StreamResponse(status=reply.status)
                response.headers.update({k: v for k, v in reply.headers.items() if k.lower() not in _HOP_BY_HOP})
                response.content_length = reply.content_length
                await response.prepare(request)
                async for piece in reply.content.iter_any():
                    await response.write(piece)
                await response.write_eof()
                return response

        loop = asyncio.get_running_loop()
        server = await loop.create_server(web.Server(relay), "127.0.0.1", 0, backlog=1024)
        async with server:
            print(server.sockets[0].getsockname()[1], flush=True)
            await loop.run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    uvloop.run(serve(sys.argv[1]))
