"""An engine whose chat answers are given byte by byte, for replies that the fake engine would never send."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

from aiohttp import web

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def raw_engine(handler: Handler, owner: str = "vllm", names: Sequence[str] = ("fake",)) -> AsyncIterator[str]:
    """The URL of an engine that answers every chat request with `handler`, and nothing else but its models."""
    listed = [{"id": name, "owned_by": owner, "max_model_len": 4096} for name in names]

    async def models(_: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": listed})

    app = web.Application(client_max_size=1 << 28)
    app.router.add_get("/v1/models", models)
    app.router.add_post("/v1/chat/completions", handler)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    try:
        yield f"http://{host}:{port}"
    finally:
        await runner.cleanup()


def says(body: bytes, content_type: str = "application/json", status: int = 200) -> Handler:
    """Always this body."""

    async def handler(http: web.Request) -> web.Response:
        await http.read()
        return web.Response(body=body, status=status, headers={"Content-Type": content_type})

    return handler


def stream(*data: bytes) -> bytes:
    """Events with these data, and `[DONE]`."""
    return b"".join(b"data: " + part + b"\n\n" for part in (*data, b"[DONE]"))
