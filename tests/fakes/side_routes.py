"""The fake engine's routes that sample nothing: models, health, version, the toy tokenizer, and renderings by it."""

import json
import time
from typing import Protocol

from aiohttp import web

from tests.fakes import toy_tokenizer
from tests.fakes.chat_json import compact
from tests.fakes.wire import hang_up


class Served(Protocol):
    """What these routes tell of the engine."""

    model: str
    max_model_len: int
    healthy: bool
    render_status: int
    renders_left: int | None
    says_models: bool

    async def render_turn(self, request: web.Request) -> None:
        """Returns when a rendering may be answered."""


class SideRoutes:
    def __init__(self, engine: Served) -> None:
        self._engine = engine

    def add_to(self, router: web.UrlDispatcher) -> None:
        router.add_get("/v1/models", self._models)
        router.add_get("/health", self._health)
        router.add_get("/version", self._version)
        router.add_post("/v1/chat/completions/render", self._render)
        router.add_post("/tokenize", self._tokenize)
        router.add_post("/detokenize", self._detokenize)

    async def _models(self, request: web.Request) -> web.Response:
        engine, created = self._engine, int(time.time())
        if not engine.says_models:
            hang_up(request, reset=False)
        permission = {
            "id": "modelperm-0000000000000000",
            "object": "model_permission",
            "created": created,
            "allow_create_engine": False,
            "allow_sampling": True,
            "allow_logprobs": True,
            "allow_search_indices": False,
            "allow_view": True,
            "allow_fine_tuning": False,
            "organization": "*",
            "group": None,
            "is_blocking": False,
        }
        model = {
            "id": engine.model,
            "object": "model",
            "created": created,
            "owned_by": "vllm",
            "root": engine.model,
            "parent": None,
            "max_model_len": engine.max_model_len,
            "permission": [permission],
        }
        return web.json_response(body=compact({"object": "list", "data": [model]}))

    async def _health(self, _: web.Request) -> web.Response:
        return web.Response(status=200 if self._engine.healthy else 503)

    async def _version(self, _: web.Request) -> web.Response:
        return web.json_response(body=compact({"version": "0.32.0"}))

    async def _render(self, request: web.Request) -> web.Response:
        engine, asked = self._engine, json.loads(await request.read())
        await engine.render_turn(request)
        if engine.renders_left is not None:
            engine.renders_left -= 1
        if engine.render_status != 200 and (engine.renders_left is None or engine.renders_left < 0):
            return web.Response(status=engine.render_status, body=b"{}")
        tokens = toy_tokenizer.prompt_ids(
            asked["messages"], asked.get("tools"), begun=asked.get("add_generation_prompt", True)
        )
        return web.json_response(body=compact({"request_id": "chatcmpl-1", "token_ids": tokens}))

    async def _tokenize(self, request: web.Request) -> web.Response:
        asked = json.loads(await request.read())
        tokens = (
            toy_tokenizer.encode(asked["prompt"])
            if "prompt" in asked
            else toy_tokenizer.prompt_ids(asked["messages"], asked.get("tools"))
        )
        head = {"count": len(tokens), "max_model_len": self._engine.max_model_len}
        return web.json_response(body=compact({**head, "tokens": tokens, "token_strs": None}))

    async def _detokenize(self, request: web.Request) -> web.Response:
        tokens = json.loads(await request.read())["tokens"]
        return web.json_response(body=compact({"prompt": toy_tokenizer.decode(tokens)}))
