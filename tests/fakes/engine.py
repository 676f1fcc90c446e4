"""The fake engine: a real HTTP server on a loopback port that answers like vLLM 0.32 from a script.

    async with FakeEngine(always(compose("Hello"))) as engine:
        ...  # talk to engine.url
        assert engine.requests[0].json["model"] == "fake"

It keeps what it received, byte for byte, and notices when a client leaves before its reply ended.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, Self, TypeVar

import msgspec
from aiohttp import web

from tests.fakes import chat_json, chat_sse, text_json, text_sse
from tests.fakes.answer import answer
from tests.fakes.chat_json import compact
from tests.fakes.compose import compose
from tests.fakes.errors import EngineError, check_chat, check_text, engine_died, invalid, of_status
from tests.fakes.faults import Faults
from tests.fakes.request import ChatRequest, TextRequest
from tests.fakes.script import Script, Turn, always
from tests.fakes.side_routes import SideRoutes
from tests.fakes.text_answer import text_answer
from tests.fakes.wire import Sender, failed, hang_up

_Request = TypeVar("_Request", bound=msgspec.Struct)
BODY_LIMIT = 64 * 1024 * 1024


@dataclass(frozen=True)
class Received:
    """One request; `at` is `time.monotonic()` when its body was complete."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes
    at: float

    @property
    def json(self) -> Any:
        return json.loads(self.body)


RECEIVED = web.RequestKey("received", Received)


@dataclass(frozen=True)
class Disconnect:
    """A client that left at `at` (`time.monotonic()`), after `events` events of its reply."""

    request: Received
    events: int
    at: float


class FakeEngine:
    """`script`, for chat completions, may be a function of the request received, and so may `text_script`.

    Text completions, which proxies also use to probe an engine, follow `text_script` and have no faults by default.
    `processed` says whether logprobs are those after temperature, so that a probe can tell.
    """

    def __init__(
        self,
        script: Script | Callable[[Received], Turn],
        *,
        text_script: Script | Callable[[Received], Turn] | None = None,
        processed: bool = True,
        model: str = "fake",
        max_model_len: int = 32_768,
        port: int = 0,
    ) -> None:
        self.model, self.max_model_len = model, max_model_len
        self.requests: list[Received] = []
        self.disconnects: list[Disconnect] = []
        self.healthy = True
        self.says_models = True
        """Whether it answers when it is asked for its models; else the connection is closed."""
        self.takes_prompts = True
        """Whether prompt ids that come with a chat are used; else they are ignored, as by older versions."""
        self.finds_old_thoughts = False
        """Whether the end of a thought anywhere in the messages ends the new turn's, as with vLLM's `deepseek_r1` parser;
        a grammar holds from the first token then, and else from none."""
        self.render_status = 200
        """What renderings are answered with; 403 is a server without --enable-scale-out."""
        self.renders_left: int | None = None
        """How many renderings succeed all the same before `render_status` counts. None: none."""
        self.holds_renders = False
        """Whether renderings wait until `release`."""
        self._script, self._text_script = script, text_script or always(compose("1"))
        self._port, self._processed, self._turns, self._text_turns = port, processed, 0, 0
        self._released, self._changed = asyncio.Event(), asyncio.Event()
        self._runner = web.AppRunner(
            self._application(), access_log=None, handler_cancellation=True, shutdown_timeout=0.1
        )

    @property
    def url(self) -> str:
        host, port = self._runner.addresses[0][:2]
        return f"http://{host}:{port}"

    async def __aenter__(self) -> Self:
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self._port).start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    def release(self) -> None:
        """Let every reply that `hold_after` holds go on, now and later."""
        self._released.set()

    async def until(self, condition: Callable[["FakeEngine"], bool], seconds: float = 5.0) -> None:
        """Wait until `condition` holds for what was received so far; raises `TimeoutError` after `seconds`."""
        async with asyncio.timeout(seconds):
            while not condition(self):
                await self._changed.wait()

    async def render_turn(self, request: web.Request) -> None:
        """Returns when a rendering may be answered."""
        if not self.holds_renders:
            return
        try:
            await self._released.wait()
        except asyncio.CancelledError:
            self.disconnects.append(Disconnect(request[RECEIVED], 0, time.monotonic()))
            self._notify()
            raise

    def _application(self) -> web.Application:
        app = web.Application(client_max_size=BODY_LIMIT, middlewares=[self._middleware])
        app.router.add_post("/v1/chat/completions", self._chat)
        app.router.add_post("/v1/completions", self._completions)
        SideRoutes(self).add_to(app.router)
        return app

    @web.middleware
    async def _middleware(self, request: web.Request, handler: Callable[[web.Request], Any]) -> web.StreamResponse:
        """Log every request, and answer errors as FastAPI and vLLM do."""
        body = await request.read()
        received = Received(request.method, request.path_qs, request.headers.copy(), body, time.monotonic())
        self.requests.append(received)
        self._notify()
        request[RECEIVED] = received
        try:
            reply = await handler(request)
        except EngineError as error:
            headers = _headers(request) | {"Content-Type": "application/json"}
            return web.Response(body=compact(error.body), status=error.status, headers=headers)
        except web.HTTPError as error:
            headers = {"Allow": error.headers["Allow"]} if "Allow" in error.headers else {}
            return web.json_response({"detail": error.reason}, status=error.status, headers=headers)
        assert isinstance(reply, web.StreamResponse)
        return reply

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    def _next_turn(self, received: Received) -> Turn:
        ordinal, self._turns = self._turns, self._turns + 1
        return self._script.turn(ordinal) if isinstance(self._script, Script) else self._script(received)

    def _next_text_turn(self, received: Received) -> Turn:
        ordinal, self._text_turns = self._text_turns, self._text_turns + 1
        script = self._text_script
        return script.turn(ordinal) if isinstance(script, Script) else script(received)

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        received = request[RECEIVED]
        turn = self._next_turn(received)
        if turn.faults.refuse or turn.faults.status:
            return await self._refused(request, turn.faults)
        if self.finds_old_thoughts and b"</think>" in received.body and b"structured_outputs" in received.body:
            turn = Turn((compose(received.json["structured_outputs"]["choice"][0]),))
        chat = _decoded(received.body, ChatRequest)
        if not self.takes_prompts:
            chat = msgspec.structs.replace(chat, kv_transfer_params=None)
        check_chat(chat, self.model, self.max_model_len)
        reply = answer(
            chat,
            turn,
            reply_id=f"chatcmpl-{self._reply_id(request)}",
            created=int(time.time()),
            model=chat.model or self.model,
            max_len=self.max_model_len,
        )
        if chat.stream:
            return await self._stream(request, turn.faults, chat_sse.events(reply))
        return await self._whole(request, turn.faults, chat_json.body(reply))

    async def _completions(self, request: web.Request) -> web.StreamResponse:
        received = request[RECEIVED]
        turn = self._next_text_turn(received)
        if turn.faults.refuse or turn.faults.status:
            return await self._refused(request, turn.faults)
        asked = _decoded(received.body, TextRequest)
        try:
            check_text(asked, self.model, self.max_model_len)
        except EngineError as error:
            if not (asked.stream and error.late):
                raise
            return await self._stream(request, turn.faults, failed(error))
        if self._processed and asked.temperature:
            turn = _hotter(turn, asked.temperature)
        reply = text_answer(
            asked,
            turn,
            reply_id=f"cmpl-{self._reply_id(request)}",
            created=int(time.time()),
            model=asked.model or self.model,
            max_len=self.max_model_len,
        )
        if asked.stream:
            return await self._stream(request, turn.faults, text_sse.events(reply))
        return await self._whole(request, turn.faults, text_json.body(reply))

    def _reply_id(self, request: web.Request) -> str:
        return request.headers.get("X-Request-Id") or f"{self._turns:016x}"

    async def _refused(self, request: web.Request, faults: Faults) -> web.Response:
        if faults.hold_after == 0:
            await self._released.wait()
        if faults.refuse:
            hang_up(request, reset=False)
            return web.Response(status=503)
        error = of_status(faults.status or 503)
        headers = _headers(request) | {"Content-Type": "application/json"}
        if faults.retry_after is not None:
            headers["Retry-After"] = str(faults.retry_after)
        return web.Response(body=compact(error.body), status=error.status, headers=headers)

    async def _stream(self, request: web.Request, faults: Faults, events: Iterable[bytes]) -> web.StreamResponse:
        headers = _headers(request) | {"Content-Type": "text/event-stream; charset=utf-8"}
        response = web.StreamResponse(headers=headers)
        async with self._watched(request, Sender(request, response, faults, self._released)) as sender:
            await sender.send(events)
        return response

    async def _whole(self, request: web.Request, faults: Faults, body: bytes) -> web.StreamResponse:
        if faults.error_after is not None:
            raise engine_died()
        headers = _headers(request) | {"Content-Type": "application/json", "Content-Length": str(len(body))}
        response = web.StreamResponse(headers=headers)
        half = len(body) // 2
        async with self._watched(request, Sender(request, response, faults, self._released)) as sender:
            await sender.send((body[:half], body[half:]))
        return response

    @asynccontextmanager
    async def _watched(self, request: web.Request, sender: Sender) -> AsyncIterator[Sender]:
        """Note the client's leaving: aiohttp cancels the handler, or the next write fails."""
        try:
            yield sender
        except asyncio.CancelledError:
            self._note_leaving(request, sender)
            raise
        except ConnectionError:
            self._note_leaving(request, sender)

    def _note_leaving(self, request: web.Request, sender: Sender) -> None:
        self.disconnects.append(Disconnect(request[RECEIVED], sender.sent, time.monotonic()))
        self._notify()


def _headers(request: web.Request) -> dict[str, str]:
    given = request.headers.get("X-Request-Id")
    return {"Server": "uvicorn", **({"X-Request-Id": given} if given else {})}


def _hotter(turn: Turn, temperature: float) -> Turn:
    """The same tokens with the logprobs of another temperature, roughly."""
    replies = (
        reply.with_logprobs(*(value and value / temperature for value in reply.logprobs)) for reply in turn.replies
    )
    return replace(turn, replies=tuple(replies))


def _decoded(body: bytes, kind: type[_Request]) -> _Request:
    """Raises `EngineError` 400 where vLLM's request model would not accept the body."""
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as error:
        field = next(iter(kind.__struct_fields__))
        if f"missing required field `{field}`" in str(error):
            given = f"'<dict of {len(json.loads(body))} items>'"
            raise invalid(field, "missing", "Field required", given) from error
        raise EngineError(str(error), 400, "Bad Request") from error
    except msgspec.DecodeError as error:
        raise invalid("0", "json_invalid", "JSON decode error", "{}") from error
