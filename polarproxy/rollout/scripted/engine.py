"""The scripted engine: a real server on a loopback port that speaks vLLM's chat API, streamed and whole.

async with ScriptedEngine(played(turns)) as engine:
    ...  # engine.url is an upstream
"""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any, Self

from aiohttp import web

from polarproxy.model.harness import Turn
from polarproxy.rollout.scripted import tokens

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


_BODY = 256 << 20
_PIECE = 16
"""Characters of an event."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A chat request, as far as a script looks at it."""

    messages: list[dict[str, Any]]
    tools: list[Any]

    @property
    def offered(self) -> frozenset[str]:
        """The names of its tools."""
        return frozenset(tool.get("function", {}).get("name") for tool in self.tools if isinstance(tool, dict))

    @property
    def turn(self) -> int:
        """How many answers of the model it has."""
        return sum(message.get("role") == "assistant" for message in self.messages)


def played(turns: Sequence[Turn]) -> Callable[[Asked], Turn]:
    """The turns one after the other, told by how many answers the conversation has; the last one answers all after it.

    A request that does not offer the tool of its turn, for a title say, gets the last text.
    """

    tools = {turn.tool for turn in turns if turn.tool is not None}
    last = Turn(text=next((turn.text for turn in reversed(turns) if turn.text), "Done."))

    def answer(asked: Asked) -> Turn:
        turn = turns[min(asked.turn, len(turns) - 1)]
        return turn if tools <= asked.offered else last

    return answer


class ScriptedEngine:
    """Answers chats as the script says, while the `async with` block lasts; `delay_s` seconds after each request."""

    def __init__(
        self, script: Callable[[Asked], Turn], *, model: str = "scripted", context: int = 262_144, delay_s: float = 0.0
    ) -> None:
        self.model, self.context, self.delay_s = model, context, delay_s
        self.asked: list[Asked] = []
        """Every chat request, in order of arrival."""
        self._script = script
        self._ids = count(1)
        app = web.Application(client_max_size=_BODY)
        app.router.add_get("/v1/models", self._models)
        app.router.add_get("/health", _well)
        app.router.add_get("/version", _version)
        app.router.add_post("/tokenize", _tokenize)
        app.router.add_post("/v1/chat/completions", self._chat)
        self._runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)

    @property
    def url(self) -> str:
        """`http://127.0.0.1:PORT`; only inside the block."""
        return f"http://127.0.0.1:{self._runner.addresses[0][1]}"

    async def __aenter__(self) -> Self:
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    async def _models(self, _: web.Request) -> web.Response:
        # Signed as vLLM does, which is how a proxy knows that it may ask for ids.
        model = {"id": self.model, "object": "model", "owned_by": "vllm", "max_model_len": self.context}
        return web.json_response({"object": "list", "data": [model]})

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        asked = Asked(body["messages"], body.get("tools") or [])
        self.asked.append(asked)
        turn = self._script(asked)
        if self.delay_s:
            await asyncio.sleep(self.delay_s)
        reply = _Reply(turn, tokens.prompt(asked.messages, asked.tools), body, f"chatcmpl-{next(self._ids):016x}")
        if not body.get("stream"):
            return web.json_response(reply.whole())
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
        await response.prepare(request)
        for event in reply.events():
            await response.write(b"data: " + json.dumps(event).encode() + b"\n\n")
        await response.write(b"data: [DONE]\n\n")
        return response


async def _well(_: web.Request) -> web.Response:
    return web.Response()


async def _version(_: web.Request) -> web.Response:
    return web.json_response({"version": "0.32.0"})


async def _tokenize(request: web.Request) -> web.Response:
    body = await request.json()
    ids = tokens.prompt(body.get("messages") or [], body.get("tools") or [])
    return web.json_response({"count": len(ids), "max_model_len": 262_144, "tokens": ids})


class _Reply:
    """One answer, in both of vLLM's spellings."""

    def __init__(self, turn: Turn, prompt: list[int], body: dict[str, Any], name: str) -> None:
        self.text, self.tool = turn.text, turn.tool
        self.arguments = json.dumps(turn.arguments, ensure_ascii=False)
        self.prompt, self.body = prompt, body
        markup = "" if self.tool is None else tokens.tool_call(self.tool, self.arguments)
        between = "\n" if self.text and markup else ""
        self.markup = between + markup
        self.finish = "stop" if self.tool is None else "tool_calls"
        self.count = len(tokens.encode(self.text + self.markup)) + 1
        self._name = name
        self._head: dict[str, Any] = {"id": name, "created": int(time.time()), "model": body.get("model")}

    @property
    def _call(self) -> dict[str, Any]:
        return {"id": f"call_{self._name[-8:]}", "type": "function"}

    def whole(self) -> dict[str, Any]:
        """The reply as one JSON object."""
        message: dict[str, Any] = {"role": "assistant", "content": self.text or None}
        if self.tool is not None:
            message["tool_calls"] = [{**self._call, "function": {"name": self.tool, "arguments": self.arguments}}]
        ids = [*tokens.encode(self.text + self.markup), tokens.END]
        choice = {
            "index": 0,
            "message": message,
            "finish_reason": self.finish,
            "stop_reason": None,
            **self._sampled(ids),
        }
        return {
            **self._head,
            "object": "chat.completion",
            "choices": [choice],
            "usage": self._usage(),
            "prompt_token_ids": self.prompt if self.body.get("return_token_ids") else None,
        }

    def events(self) -> Iterator[dict[str, Any]]:
        """The reply as events."""
        first = self._event({"role": "assistant", "content": ""}, [])
        if self.body.get("return_token_ids"):
            first["prompt_token_ids"] = self.prompt
        yield first
        for start in range(0, len(self.text), _PIECE):
            piece = self.text[start : start + _PIECE]
            yield self._event({"content": piece}, tokens.encode(piece))
        if self.tool is not None:
            function = {"name": self.tool, "arguments": self.arguments}
            yield self._event(
                {"tool_calls": [{"index": 0, **self._call, "function": function}]}, tokens.encode(self.markup)
            )
        yield self._event({}, [tokens.END], self.finish)
        if (self.body.get("stream_options") or {}).get("include_usage"):
            yield {**self._head, "object": "chat.completion.chunk", "choices": [], "usage": self._usage()}

    def _event(self, delta: dict[str, Any], ids: list[int], finish: str | None = None) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "finish_reason": finish, **self._sampled(ids)}
        return {**self._head, "object": "chat.completion.chunk", "choices": [choice]}

    def _sampled(self, ids: list[int]) -> dict[str, Any]:
        shown = [
            {"token": tokens.spell(one), "logprob": tokens.logprob(one), "bytes": [], "top_logprobs": []} for one in ids
        ]
        return {
            "logprobs": {"content": shown} if self.body.get("logprobs") else None,
            "token_ids": ids if self.body.get("return_token_ids") else None,
        }

    def _usage(self) -> dict[str, int]:
        prompt = len(self.prompt)
        return {"prompt_tokens": prompt, "completion_tokens": self.count, "total_tokens": prompt + self.count}
