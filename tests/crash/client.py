"""The crash test's harnesses: each plays conversations and writes down every reply whose end it saw."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import aiohttp

from tests.crash.engine import MODEL
from tests.crash.sampled import prompt_ids, serial_of_text

if TYPE_CHECKING:
    import random

_TURNS = 6


@dataclass(frozen=True)
class Seen:
    """A reply whose end a client saw: what must be in the store from that moment on."""

    serial: int
    session_id: str
    prompt_token_ids: tuple[int, ...]
    streamed: bool


class Refused(Exception):
    """The proxy answered, and not with what was asked for."""


@dataclass
class _Conversation:
    session_id: str
    api_key: str
    messages: list[dict[str, str]] = field(default_factory=list)


class Harness:
    """One client. It keeps its conversation when the proxy dies, and goes on with it afterwards, as a real one would."""

    def __init__(self, base: str, ledger: list[Seen], rng: random.Random) -> None:
        self._base = base
        self._ledger = ledger
        self._rng = rng
        self._conversation: _Conversation | None = None

    async def play(self, http: aiohttp.ClientSession) -> None:
        """Runs until the proxy is gone. Raises `Refused` for an answer that is none."""
        try:
            while True:
                conversation = self._conversation
                if conversation is None or len(conversation.messages) > 2 * _TURNS:
                    conversation = self._conversation = await self._begin(http)
                await self._turn(http, conversation)
        except (aiohttp.ClientError, ConnectionError):
            return

    async def _begin(self, http: aiohttp.ClientSession) -> _Conversation:
        async with http.post(f"{self._base}/api/sessions", json={}) as reply:
            made = await reply.json()
            if reply.status >= 400:
                raise Refused(f"POST /api/sessions: {reply.status} {made}")
            system = {"role": "system", "content": f"You work on task {self._rng.randrange(10)} of the crash test."}
            return _Conversation(made["session_id"], made["api_key"], [system])

    async def _turn(self, http: aiohttp.ClientSession, conversation: _Conversation) -> None:
        ask = {"role": "user", "content": f"Go on with step {self._rng.randrange(1_000_000)}, please."}
        if conversation.messages[-1]["role"] == "user":
            conversation.messages.pop()  # the proxy died on it: this asks anew
        conversation.messages.append(ask)
        streamed = self._rng.random() < 0.5
        body: dict[str, object] = {"model": MODEL, "messages": conversation.messages, "max_tokens": 64}
        if streamed:
            body["stream"] = True
        if streamed and self._rng.random() < 0.5:
            body["stream_options"] = {"include_usage": True}
        headers = {"Authorization": f"Bearer {conversation.api_key}"}
        async with http.post(f"{self._base}/v1/chat/completions", json=body, headers=headers) as reply:
            if reply.status != 200:
                raise Refused(f"{reply.status} {(await reply.read())[:500]!r}")
            await (self._read_stream if streamed else self._read_whole)(reply, conversation)

    async def _read_whole(self, reply: aiohttp.ClientResponse, conversation: _Conversation) -> None:
        choice = json.loads(await reply.read())["choices"][0]
        self._saw_end(conversation, choice["message"]["content"], streamed=False)

    async def _read_stream(self, reply: aiohttp.ClientResponse, conversation: _Conversation) -> None:
        text, ended = "", False
        async for line in reply.content:
            if not line.startswith(b"data: "):
                continue
            data = line.removeprefix(b"data: ").strip()
            choices = [] if data == b"[DONE]" else json.loads(data).get("choices")
            if choices is None:
                raise Refused(f"an event in place of a chunk: {data[:500]!r}")
            text += "".join(choice["delta"].get("content") or "" for choice in choices)
            finished = data == b"[DONE]" or any(choice["finish_reason"] for choice in choices)
            if finished and not ended:
                ended = True
                self._saw_end(conversation, text, streamed=True)
        if not ended:
            raise aiohttp.ClientPayloadError("the stream stopped without an end")

    def _saw_end(self, conversation: _Conversation, text: str, *, streamed: bool) -> None:
        serial = serial_of_text(text)
        if serial is None:
            raise Refused(f"the reply is not the engine's: {text!r}")
        prompt = tuple(prompt_ids(conversation.messages))
        self._ledger.append(Seen(serial, conversation.session_id, prompt, streamed))
        conversation.messages.append({"role": "assistant", "content": text})
