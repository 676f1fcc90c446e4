"""Replies of the engine for a trainer that asks by messages, through the proxy, which records them."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Self

import aiohttp
import msgspec

from polarproxy.errors import UNREADABLE, BadRequest, ProxyRefused
from polarproxy.rollout.delegate.messages import GenerateResponse

if TYPE_CHECKING:
    from collections.abc import Callable

    from polarproxy.rollout.delegate.messages import GenerateRequest

_PATIENCE_S = 3600.0
_REMEMBERED = 1024
_COME_BACK = (408, 425, 429)


class _Logprob(msgspec.Struct):
    logprob: float | None


class _Logprobs(msgspec.Struct):
    content: list[_Logprob] | None = None


class _Choice(msgspec.Struct):
    message: dict[str, Any]
    finish_reason: str | None = None
    logprobs: _Logprobs | None = None
    token_ids: list[int] | None = None


class _Reply(msgspec.Struct):
    choices: list[_Choice]
    prompt_token_ids: list[int] | None = None


class Generation:
    """Open while the `async with` block lasts. `key_of` gives the key of a session, or raises `BadRequest`.

    A request that comes again while its reply is still known is not sampled again.
    """

    def __init__(self, base: str, key_of: Callable[[str], str]) -> None:
        self._base, self._key_of = base, key_of
        self._http: aiohttp.ClientSession | None = None
        self._known: OrderedDict[str, tuple[GenerateRequest, asyncio.Task[GenerateResponse]]] = OrderedDict()

    async def __aenter__(self) -> Self:
        connector = aiohttp.TCPConnector(limit=0)
        self._http = aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=_PATIENCE_S))
        return self

    async def __aexit__(self, *_: object) -> None:
        tasks = [task for _, task in self._known.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._http is not None:
            await self._http.close()

    async def answer(self, request: GenerateRequest) -> GenerateResponse:
        """Raises `BadRequest` for what will never have a reply, `ProxyRefused` for what has none now."""
        known = self._known.get(request.id)
        if known is None or _failed(known[1]):
            known = self._known[request.id] = request, asyncio.create_task(self._ask(request))
            self._forget()
        asked, task = known
        if asked != request:
            raise BadRequest(f"the id {request.id!r} belongs to another generate request")
        return await asyncio.shield(task)

    def _forget(self) -> None:
        for name in list(self._known)[: max(0, len(self._known) - _REMEMBERED)]:
            if self._known[name][1].done():
                del self._known[name]

    async def _ask(self, request: GenerateRequest) -> GenerateResponse:
        assert self._http is not None, "use it as a context manager"
        body = request.sampling | {
            "messages": request.messages,
            "logprobs": True,
            "return_token_ids": True,
            **({} if request.model is None else {"model": request.model}),
            **({"tools": request.tools} if request.tools else {}),
            **({} if request.tool_choice is None else {"tool_choice": request.tool_choice}),
        }
        headers = {
            "Authorization": f"Bearer {self._key_of(request.session_id)}",
            "Content-Type": "application/json",
        }
        try:
            # Wherever a redirect leads, neither the key nor what was said is for it.
            async with self._http.post(
                f"{self._base}/v1/chat/completions",
                data=msgspec.json.encode(body),
                headers=headers,
                allow_redirects=False,
            ) as answer:
                said = await answer.read()
        except (aiohttp.ClientError, TimeoutError) as error:
            raise ProxyRefused(f"the proxy at {self._base} cannot be reached: {error!r}") from error
        if answer.status != 200:
            why = f"{answer.status} {said.decode(errors='replace')[:500]}"
            if answer.status >= 500 or answer.status in _COME_BACK:
                raise ProxyRefused(why)
            raise BadRequest(why)
        return _read(request, said)


def _failed(task: asyncio.Task[GenerateResponse]) -> bool:
    return task.done() and (task.cancelled() or task.exception() is not None)


def _read(request: GenerateRequest, said: bytes) -> GenerateResponse:
    try:
        reply = msgspec.json.decode(said, type=_Reply)
    except UNREADABLE as error:
        raise ProxyRefused(f"the engine's reply cannot be read: {error}") from error
    if not reply.choices:
        raise ProxyRefused("the engine's reply has no choice")
    choice = reply.choices[0]
    content = None if choice.logprobs is None else choice.logprobs.content
    return GenerateResponse(
        id=request.id,
        session_id=request.session_id,
        message=choice.message,
        finish_reason=choice.finish_reason,
        prompt_token_ids=reply.prompt_token_ids,
        token_ids=choice.token_ids,
        logprobs=None if content is None else [one.logprob for one in content],
    )
