"""The crash tests' harnesses: each plays conversations and writes down every reply whose end it saw."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import aiohttp

from tests.crash.engine import MODEL
from tests.crash.sampled import prompt_ids, serial_of_text

if TYPE_CHECKING:
    import random

_TURNS = 6
_PAUSE_S = 0.02
"""Before trying again. A real client waits longer; here every trouble lasts only so long."""


@dataclass(frozen=True)
class Seen:
    """A reply whose end a client saw: what must be in the store from that moment on."""

    serial: int
    session_id: str
    prompt_token_ids: tuple[int, ...]
    streamed: bool


@dataclass
class Ledger:
    """What all clients saw, in the order in which they saw it."""

    seen: list[Seen] = field(default_factory=list)
    refusals: Counter[str] = field(default_factory=Counter)
    """What answers of 503 said, and streams that were broken off because the store could not commit."""
    odd: list[str] = field(default_factory=list)
    """Answers that should never be given."""


@dataclass
class Gate:
    """Open while there is a proxy to ask; over when nothing new is to be asked."""

    open: asyncio.Event = field(default_factory=asyncio.Event)
    over: bool = False


class Odd(Exception):
    """The proxy answered something that it never should."""


class Unavailable(Exception):
    """The proxy said that the store cannot take a call now, and that trying again may help."""


@dataclass
class _Conversation:
    session_id: str
    api_key: str
    messages: list[dict[str, str]] = field(default_factory=list)


class Harness:
    """One client. It keeps its conversation when a turn fails, and goes on with it afterwards, as a real one would."""

    def __init__(self, base: str, ledger: Ledger, rng: random.Random) -> None:
        self._base = base
        self._ledger = ledger
        self._rng = rng
        self._conversation: _Conversation | None = None

    async def play(self, http: aiohttp.ClientSession, gate: Gate) -> None:
        """Runs until it is over. Raises `TimeoutError` when an answer does not come at all."""
        while not gate.over:
            await gate.open.wait()
            try:
                await self._step(http)
            except Unavailable as refused:
                self._ledger.refusals[str(refused)] += 1
                await asyncio.sleep(_PAUSE_S)
            except Odd as error:
                self._ledger.odd.append(str(error))
                await asyncio.sleep(_PAUSE_S)
            except (aiohttp.ClientError, ConnectionError):
                await asyncio.sleep(_PAUSE_S)

    async def _step(self, http: aiohttp.ClientSession) -> None:
        conversation = self._conversation
        if conversation is None or len(conversation.messages) > 2 * _TURNS:
            conversation = self._conversation = await self._begin(http)
        await self._turn(http, conversation)

    async def _begin(self, http: aiohttp.ClientSession) -> _Conversation:
        async with http.post(f"{self._base}/api/sessions", json={"group_id": "crash"}) as reply:
            await _check(reply, 201)
            made = await reply.json()
            system = {"role": "system", "content": f"You work on task {self._rng.randrange(10)} of the crash test."}
            return _Conversation(made["session_id"], made["api_key"], [system])

    async def _turn(self, http: aiohttp.ClientSession, conversation: _Conversation) -> None:
        ask = {"role": "user", "content": f"Go on with step {self._rng.randrange(1_000_000)}, please."}
        if conversation.messages[-1]["role"] == "user":
            conversation.messages.pop()  # it was not answered: this asks anew
        conversation.messages.append(ask)
        streamed = self._rng.random() < 0.5
        body: dict[str, object] = {"model": MODEL, "messages": conversation.messages, "max_tokens": 64}
        if streamed:
            body["stream"] = True
        if streamed and self._rng.random() < 0.5:
            body["stream_options"] = {"include_usage": True}
        headers = {"Authorization": f"Bearer {conversation.api_key}"}
        async with http.post(f"{self._base}/v1/chat/completions", json=body, headers=headers) as reply:
            await _check(reply, 200)
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
                broken_off = f"an event in place of a chunk: {data!r}"
                raise Unavailable(broken_off) if b"ServiceUnavailable" in data else Odd(broken_off)
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
            raise Odd(f"the reply is not the engine's: {text!r}")
        prompt = tuple(prompt_ids(conversation.messages))
        self._ledger.seen.append(Seen(serial, conversation.session_id, prompt, streamed))
        conversation.messages.append({"role": "assistant", "content": text})


async def _check(reply: aiohttp.ClientResponse, status: int) -> None:
    if reply.status == status:
        return
    said = await reply.read()
    if reply.status == 503 and "Retry-After" in reply.headers:
        raise Unavailable(f"{reply.url.path}: {said[:500]!r}")
    raise Odd(f"{reply.url.path}: {reply.status} {said[:500]!r}")
