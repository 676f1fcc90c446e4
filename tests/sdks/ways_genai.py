"""The ways in which Google's SDK can ask for content: each gives the same, or something is wrong."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeAlias, TypeVar

import httpx2
import pytest
from google.genai import Client
from google.genai.client import AsyncClient
from google.genai.types import GenerateContentResponse, HttpOptions, HttpRetryOptions

from tests.proxy.rig import SECONDS, Rig
from tests.sdks.scenes import Counts, Given, Part

Response = GenerateContentResponse
Way: TypeAlias = Callable[..., Awaitable[Response]]
"""Takes a rig, a key and the arguments of a request."""
_T = TypeVar("_T")

ONCE = HttpRetryOptions(attempts=1)
# The SDK makes its own kind of aiohttp's session, which aiohttp advises against.
QUIET = pytest.mark.filterwarnings("ignore:Inheritance class AiohttpClientSession:DeprecationWarning")


def client(rig: Rig, key: str | None, options: dict[str, Any]) -> Client:
    """A client that holds a key, that of session `s1` if None."""
    known: dict[str, Any] = {"base_url": rig.base, "timeout": int(SECONDS * 1000), "retry_options": ONCE}
    # Nothing here is encrypted, and reading the certificates takes longer than all else.
    known |= {"client_args": {"verify": False}, "async_client_args": {"ssl": False}}
    return Client(api_key=key or rig.parts.signer.key("s1"), http_options=HttpOptions(**known | options))


async def in_thread(rig: Rig, use: Callable[[Client], _T], key: str | None = None, **options: Any) -> _T:
    """What a use of the synchronous client gives."""

    def run() -> _T:
        with client(rig, key, options) as sync:
            return use(sync)

    async with asyncio.timeout(SECONDS):
        return await asyncio.to_thread(run)


async def awaited(rig: Rig, use: Callable[[AsyncClient], Awaitable[_T]], key: str | None = None, **options: Any) -> _T:
    """What a use of the asynchronous client gives. It speaks with aiohttp unless it is given a client of httpx."""
    whole = client(rig, key, options)
    try:
        async with asyncio.timeout(SECONDS), whole.aio as aio:
            return await use(aio)
    finally:
        whole.close()


def joined(chunks: Iterable[Response]) -> Response:
    """The content that the chunks of a stream add up to, each of them as the API says."""
    seen = list(chunks)
    parts: list[Any] = []
    for chunk in seen:
        assert chunk.candidates is not None
        (candidate,) = chunk.candidates
        assert (candidate.finish_reason is None) == (chunk is not seen[-1])
        assert candidate.content is not None
        assert (candidate.content.role, chunk.response_id) == ("model", seen[0].response_id)
        assert chunk.usage_metadata is not None
        assert chunk.usage_metadata.prompt_token_count
        for part in candidate.content.parts or ():
            _add(parts, part)
    last = seen[-1].model_copy(deep=True)
    assert last.candidates is not None
    assert last.candidates[0].content is not None
    last.candidates[0].content.parts = parts
    return last


def _add(parts: list[Any], part: Any) -> None:
    before = parts[-1] if parts else None
    more = before is not None and part.text is not None and before.text is not None and before.thought == part.thought
    if before is None or not more or part.thought_signature:
        parts.append(part.model_copy())
    else:
        before.text += part.text


async def _generate(rig: Rig, key: str | None = None, **request: Any) -> Response:
    return await in_thread(rig, lambda sync: sync.models.generate_content(**request), key)


async def _generate_async(rig: Rig, key: str | None = None, **request: Any) -> Response:
    return await awaited(rig, lambda aio: aio.models.generate_content(**request), key)


async def _generate_httpx(rig: Rig, key: str | None = None, **request: Any) -> Response:
    async with httpx2.AsyncClient(verify=False) as http:
        return await awaited(
            rig,
            lambda aio: aio.models.generate_content(**request),
            key,
            httpx_async_client=http,
            async_client_args=None,
        )


async def _stream(rig: Rig, key: str | None = None, **request: Any) -> Response:
    return await in_thread(rig, lambda sync: joined(sync.models.generate_content_stream(**request)), key)


async def _chunks(aio: AsyncClient, request: dict[str, Any]) -> Response:
    return joined([chunk async for chunk in await aio.models.generate_content_stream(**request)])


async def _stream_async(rig: Rig, key: str | None = None, **request: Any) -> Response:
    return await awaited(rig, lambda aio: _chunks(aio, request), key)


async def _stream_httpx(rig: Rig, key: str | None = None, **request: Any) -> Response:
    async with httpx2.AsyncClient(verify=False) as http:
        return await awaited(
            rig, lambda aio: _chunks(aio, request), key, httpx_async_client=http, async_client_args=None
        )


WAYS: dict[str, Way] = {
    "generate": _generate,
    "generate async": _generate_async,
    "generate httpx": _generate_httpx,
    "stream": _stream,
    "stream async": _stream_async,
    "stream httpx": _stream_httpx,
}
EVERY_WAY = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
WHOLE = frozenset((_generate, _generate_async, _generate_httpx))
"""Those that get the content in one piece."""


def given(response: Response) -> Given:
    """What a response tells."""
    assert response.candidates is not None
    (candidate,) = response.candidates
    assert candidate.content is not None
    assert candidate.finish_reason is not None
    usage = response.usage_metadata
    assert usage is not None
    prompt, sampled, thought = usage.prompt_token_count, usage.candidates_token_count, usage.thoughts_token_count
    assert None not in (prompt, sampled, thought)
    assert usage.total_token_count == (prompt or 0) + (sampled or 0) + (thought or 0)
    return Given(
        id=response.response_id or "",
        model=response.model_version,
        said=tuple(_said(part) for part in candidate.content.parts or () if part.text != "" or part.function_call),
        finish=candidate.finish_reason.value,
        counts=Counts(
            prompt=prompt or 0,
            cached=usage.cached_content_token_count or 0,
            sampled=(sampled or 0) + (thought or 0),
            thought=thought,
        ),
    )


def _said(part: Any) -> Part:
    if part.function_call is not None:
        assert part.function_call.id
        return ("call", part.function_call.name, part.function_call.args)
    return ("thinking" if part.thought else "text", part.text)
