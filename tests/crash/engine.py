"""The crash test's engine: every request is answered with the next serial's reply, whole or in paced events."""

from __future__ import annotations

import asyncio
import itertools
import json
import random
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from aiohttp import web

from tests.bench.process import free_port
from tests.crash.sampled import Sampled, prompt_ids, sampled

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

MODEL = "crash"
_SLOWEST_EVENT_SECONDS = 0.01
_SLOWEST_REPLY_SECONDS = 0.1


@dataclass
class Engine:
    """`generated` counts the replies that were finished, whether or not anybody was there to read them."""

    port: int
    _rng: random.Random
    _serials: itertools.count[int]
    generated: int = 0

    async def answer(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        reply = sampled(next(self._serials))
        prompt = prompt_ids(body["messages"])
        if body.get("stream"):
            response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
            with suppress(ConnectionError):  # the proxy was killed
                await self._stream(request, response, body, reply, prompt)
            return response
        await asyncio.sleep(self._rng.random() * _SLOWEST_REPLY_SECONDS)
        self.generated += 1
        return web.json_response(_whole(reply, prompt))

    async def _stream(
        self,
        request: web.Request,
        response: web.StreamResponse,
        body: dict[str, Any],
        reply: Sampled,
        prompt: list[int],
    ) -> None:
        await response.prepare(request)
        pace = self._rng.random() * _SLOWEST_EVENT_SECONDS
        usage = bool(body.get("stream_options", {}).get("include_usage"))
        for event in _events(reply, prompt, usage=usage):
            await response.write(b"data: " + json.dumps(event, separators=(",", ":")).encode() + b"\n\n")
            await asyncio.sleep(pace)
        self.generated += 1
        await response.write(b"data: [DONE]\n\n")


@asynccontextmanager
async def serving(seed: int) -> AsyncIterator[Engine]:
    """A listening engine on a free loopback port."""
    engine = Engine(free_port(), random.Random(seed), itertools.count(1))
    app = web.Application(client_max_size=64 * 1024 * 1024)
    app.router.add_post("/v1/chat/completions", engine.answer)
    app.router.add_get("/v1/models", _models)
    app.router.add_get("/health", _health)
    app.router.add_get("/version", _version)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=1.0)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", engine.port).start()
        yield engine
    finally:
        await runner.cleanup()


async def _models(_: web.Request) -> web.Response:
    model = {"id": MODEL, "object": "model", "created": 1_796_010_818, "owned_by": "vllm", "max_model_len": 32_768}
    return web.json_response({"object": "list", "data": [model]})


async def _health(_: web.Request) -> web.Response:
    return web.Response()


async def _version(_: web.Request) -> web.Response:
    return web.json_response({"version": "0.32.0"})


def _logprob(word: str, logprob: float) -> dict[str, object]:
    return {"token": word, "logprob": logprob, "bytes": list(word.encode()), "top_logprobs": []}


def _usage(reply: Sampled, prompt: list[int]) -> dict[str, object]:
    return {
        "prompt_tokens": len(prompt),
        "total_tokens": len(prompt) + len(reply.token_ids),
        "completion_tokens": len(reply.token_ids),
    }


def _head(reply: Sampled, kind: str) -> dict[str, object]:
    return {"id": f"chatcmpl-{reply.serial:016x}", "object": kind, "created": 1_796_010_818, "model": MODEL}


def _whole(reply: Sampled, prompt: list[int]) -> dict[str, object]:
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": reply.text, "refusal": None, "reasoning": None},
        "logprobs": {"content": [_logprob(*pair) for pair in zip(reply.words, reply.logprobs, strict=True)]},
        "finish_reason": "stop",
        "stop_reason": None,
        "token_ids": reply.token_ids,
    }
    head = _head(reply, "chat.completion")
    return {**head, "choices": [choice], "usage": _usage(reply, prompt), "prompt_token_ids": prompt}


def _events(reply: Sampled, prompt: list[int], *, usage: bool) -> list[dict[str, object]]:
    head = _head(reply, "chat.completion.chunk")
    role = {
        "index": 0,
        "delta": {"role": "assistant", "content": ""},
        "logprobs": None,
        "finish_reason": None,
    }
    events: list[dict[str, object]] = [{**head, "choices": [role], "prompt_token_ids": prompt, "prompt_text": None}]
    last = len(reply.token_ids) - 1
    for place, (word, logprob, token_id) in enumerate(zip(reply.words, reply.logprobs, reply.token_ids, strict=True)):
        choice: dict[str, object] = {
            "index": 0,
            "delta": {"content": word} if place < last else {},
            "logprobs": {"content": [_logprob(word, logprob)]},
            "finish_reason": None if place < last else "stop",
            "token_ids": [token_id],
        }
        if place == last:
            choice["stop_reason"] = None
        events.append({**head, "choices": [choice]})
    if usage:
        events.append({**head, "choices": [], "usage": _usage(reply, prompt)})
    return events
