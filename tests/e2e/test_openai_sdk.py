"""The OpenAI SDK parses what comes through the proxy into the same objects as what vLLM sends it directly.

Synchronous, asynchronous, streamed, by the streaming helper, and raw; answers, tool calls and errors.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI, OpenAI
from openai.types.chat import ChatCompletionChunk

from polarproxy.cli.runner import running_proxy
from polarproxy.settings import Settings
from tests.e2e.vllm_server import VllmServer
from tests.fakes.cases import HI, TOOLS, TWO
from tests.fakes.shapes import folded
from tests.fakes.transcript import stable

pytestmark = pytest.mark.vllm

SECONDS = 60.0
HELLO = {key: HI.case(ids=False).body[key] for key in ("model", "messages", "temperature")}
CALLS = {key: TOOLS.case(ids=False).body[key] for key in ("model", "messages", "temperature", "tools")}
EVERYTHING = {**HELLO, "logprobs": True, "top_logprobs": 2, "extra_body": {"return_token_ids": True}}
TWICE = TWO.case(ids=False).body
SEVERAL = {key: value for key, value in TWICE.items() if key != "top_k"} | {"extra_body": {"top_k": TWICE["top_k"]}}
USAGE = {**HELLO, "stream_options": {"include_usage": True}}

REQUESTS = {"hello": HELLO, "tools": CALLS, "everything": EVERYTHING, "several": SEVERAL}
ASKED = pytest.mark.parametrize("request_name", REQUESTS)

Api = Any
"""`chat.completions` of either client: the arguments above fit its overloads, but no type checker can see which."""


@pytest.fixture
async def urls(vllm_chat: VllmServer, tmp_path: Path) -> AsyncIterator[tuple[str, str]]:
    """Base URLs for the SDK: vLLM's own and the proxy's."""
    # Names go on as they are: what vLLM says to an unknown one is compared too.
    settings = Settings(upstream=vllm_chat.url, port=0, db=f"sqlite:///{tmp_path}/polar.db", model_map="off")
    async with running_proxy(settings) as (base, _):
        yield f"{vllm_chat.url}/v1", f"{base}/v1"


async def both(urls: tuple[str, str], ask: Callable[[OpenAI], Any]) -> tuple[Any, Any]:
    """What a synchronous client gets from vLLM and through the proxy."""

    def use(url: str) -> Any:
        with OpenAI(base_url=url, api_key="unused", timeout=SECONDS, max_retries=0) as client:
            return ask(client)

    return await asyncio.to_thread(use, urls[0]), await asyncio.to_thread(use, urls[1])


def completions(client: OpenAI) -> Api:
    return client.chat.completions


def known(text: str) -> str:
    return stable(text.encode())


def as_stream(chunks: list[ChatCompletionChunk]) -> list[str]:
    """Parsed chunks, so that how tokens were cut into them does not matter."""
    events = [f"data: {chunk.model_dump_json(exclude_unset=True)}\n\n" for chunk in chunks]
    return folded("".join(events).encode())


@ASKED
async def test_a_whole_reply(urls: tuple[str, str], request_name: str) -> None:
    request = REQUESTS[request_name]
    direct, proxied = await both(urls, lambda client: known(completions(client).create(**request).to_json(indent=None)))
    assert proxied == direct


@ASKED
async def test_a_stream(urls: tuple[str, str], request_name: str) -> None:
    request = REQUESTS[request_name]
    direct, proxied = await both(
        urls, lambda client: as_stream(list(completions(client).create(stream=True, **request)))
    )
    assert proxied == direct


async def test_a_stream_with_usage(urls: tuple[str, str]) -> None:
    direct, proxied = await both(urls, lambda client: as_stream(list(completions(client).create(stream=True, **USAGE))))
    assert proxied == direct


@pytest.mark.parametrize("request_name", ["hello", "everything"])
async def test_the_streaming_helper(urls: tuple[str, str], request_name: str) -> None:
    request = REQUESTS[request_name]

    def ask(client: OpenAI) -> str:
        with completions(client).stream(**request) as stream:
            stream.until_done()
            final: str = stream.get_final_completion().to_json(indent=None)
            return known(final)

    direct, proxied = await both(urls, ask)
    assert proxied == direct


@ASKED
async def test_a_raw_reply(urls: tuple[str, str], request_name: str) -> None:
    request = REQUESTS[request_name]

    def ask(client: OpenAI) -> tuple[int, str, str]:
        raw = completions(client).with_raw_response.create(**request)
        return raw.status_code, raw.headers["content-type"], known(raw.text)

    direct, proxied = await both(urls, ask)
    assert proxied == direct


async def test_a_raw_stream(urls: tuple[str, str]) -> None:
    def ask(client: OpenAI) -> tuple[str, list[str]]:
        with completions(client).with_streaming_response.create(stream=True, **HELLO) as raw:
            return raw.headers["content-type"], folded(raw.read())

    direct, proxied = await both(urls, ask)
    assert proxied == direct


@ASKED
async def test_the_asynchronous_client(urls: tuple[str, str], request_name: str) -> None:
    request, found = REQUESTS[request_name], list[Any]()
    for url in urls:
        async with AsyncOpenAI(base_url=url, api_key="unused", timeout=SECONDS, max_retries=0) as client:
            api: Api = client.chat.completions
            whole = await api.create(**request)
            chunks = [chunk async for chunk in await api.create(stream=True, **request)]
            found.append((known(whole.to_json(indent=None)), as_stream(chunks)))
    assert found[1] == found[0]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"model": "nope"}, openai.NotFoundError),
        ({"messages": [{"role": "user", "content": "word " * 2100}]}, openai.BadRequestError),
        ({"max_tokens": 3000}, openai.BadRequestError),
    ],
    ids=["unknown-model", "overflow", "max-tokens"],
)
async def test_an_error(
    urls: tuple[str, str], change: dict[str, Any], expected: type[openai.APIStatusError], stream: bool
) -> None:
    def ask(client: OpenAI) -> tuple[str, object, str | None, str | None]:
        with pytest.raises(expected) as caught:
            completions(client).create(stream=stream, **{**HELLO, **change})
        return str(caught.value), caught.value.body, caught.value.param, caught.value.type

    direct, proxied = await both(urls, ask)
    assert proxied == direct


async def test_the_models(urls: tuple[str, str]) -> None:
    direct, proxied = await both(urls, lambda client: [model.id for model in client.models.list()])
    assert proxied == direct == ["tiny"]
