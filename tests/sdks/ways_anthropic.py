"""The ways in which the Anthropic SDK can ask for a message: each gives the same message, or something is wrong."""

import asyncio
import json
from collections.abc import AsyncIterable, Awaitable, Callable, Iterable
from typing import Any, TypeAlias, TypeVar

import anthropic
import pytest
from anthropic import Anthropic, AsyncAnthropic
from anthropic.types import Message, RawMessageStreamEvent
from anthropic.types.beta import BetaMessage, BetaRawMessageStreamEvent

from tests.proxy.rig import SECONDS, Rig
from tests.sdks.scenes import Counts, Given, Part
from tests.sdks.strict import valid

Way: TypeAlias = Callable[..., Awaitable[Any]]
"""Takes a rig, a key and the members of a request; gives a `Message` or a `BetaMessage`."""
_T = TypeVar("_T")


def access(rig: Rig, key: str | None, options: dict[str, Any]) -> Any:
    """Arguments of a client that holds a key, that of session `s1` if None."""
    known = {"base_url": rig.base, "api_key": key or rig.parts.signer.key("s1"), "timeout": SECONDS, "max_retries": 0}
    return known | options


async def in_thread(rig: Rig, use: Callable[[Anthropic], _T], key: str | None = None, **options: Any) -> _T:
    """What a use of the synchronous client gives."""

    def run() -> _T:
        # Nothing here is encrypted, and reading the certificates takes longer than all else.
        plain = anthropic.DefaultHttpxClient(verify=False)
        with Anthropic(http_client=plain, **access(rig, key, options)) as client:
            return use(client)

    async with asyncio.timeout(SECONDS):
        return await asyncio.to_thread(run)


async def awaited(
    rig: Rig, use: Callable[[AsyncAnthropic], Awaitable[_T]], key: str | None = None, **options: Any
) -> _T:
    """What a use of the asynchronous client gives."""
    plain = anthropic.DefaultAsyncHttpxClient(verify=False)
    async with asyncio.timeout(SECONDS), AsyncAnthropic(http_client=plain, **access(rig, key, options)) as client:
        return await use(client)


async def listed(events: AsyncIterable[_T]) -> list[_T]:
    """All of them."""
    return [event async for event in events]


def life(events: Iterable[Any], kind: Any = RawMessageStreamEvent) -> Any:
    """The message that the events of a stream make, each of them as the API says and in its order."""
    first, *rest = [valid(event, kind) for event in events]
    assert first.type == "message_start"
    message, block, texts = first.message.to_dict(), None, list[str]()
    assert (message["content"], message["stop_reason"]) == ([], None)
    for event in rest[:-2]:
        assert event.index == len(message["content"])
        match event.type:
            case "content_block_start":
                assert block is None
                block, texts = event.content_block.to_dict(), []
            case "content_block_delta":
                assert block is not None
                _add(block, event.delta, texts)
            case "content_block_stop":
                assert block is not None
                if block["type"] == "tool_use" and texts:
                    block["input"] = json.loads("".join(texts))
                message["content"].append(block)
                block = None
            case other:
                raise AssertionError(other)
    assert block is None
    delta, stop = rest[-2:]
    assert (delta.type, stop.type) == ("message_delta", "message_stop")
    # How much of the prompt was cached is not known at the start, its length is.
    assert message["usage"]["input_tokens"] == delta.usage.input_tokens + delta.usage.cache_read_input_tokens
    message |= delta.delta.to_dict()
    message["usage"] |= delta.usage.to_dict()
    return type(first.message).model_validate(message)


def _add(block: dict[str, Any], delta: Any, texts: list[str]) -> None:
    match block["type"], delta.type:
        case "text", "text_delta":
            block["text"] += delta.text
        case "thinking", "thinking_delta":
            block["thinking"] += delta.thinking
        case "thinking", "signature_delta":
            block["signature"] += delta.signature
        case "tool_use", "input_json_delta":
            texts.append(delta.partial_json)
        case other:
            raise AssertionError(other)


async def _create(rig: Rig, key: str | None = None, **request: Any) -> Message:
    return await in_thread(rig, lambda client: client.messages.create(**request), key)


async def _create_async(rig: Rig, key: str | None = None, **request: Any) -> Message:
    return await awaited(rig, lambda client: client.messages.create(**request), key)


async def _events(rig: Rig, key: str | None = None, **request: Any) -> Any:
    def use(client: Anthropic) -> Any:
        with client.messages.create(stream=True, **request) as stream:
            return life(stream)

    return await in_thread(rig, use, key)


async def _events_async(rig: Rig, key: str | None = None, **request: Any) -> Any:
    async def use(client: AsyncAnthropic) -> Any:
        async with await client.messages.create(stream=True, **request) as stream:
            return life(await listed(stream))

    return await awaited(rig, use, key)


async def _stream(rig: Rig, key: str | None = None, **request: Any) -> Message:
    def use(client: Anthropic) -> Message:
        with client.messages.stream(**request) as stream:
            text = "".join(stream.text_stream)
            message = stream.get_final_message()
        assert text == "".join(block.text for block in message.content if block.type == "text")
        return message

    return await in_thread(rig, use, key)


async def _stream_async(rig: Rig, key: str | None = None, **request: Any) -> Message:
    async def use(client: AsyncAnthropic) -> Message:
        async with client.messages.stream(**request) as stream:
            return await stream.get_final_message()

    return await awaited(rig, use, key)


async def _beta(rig: Rig, key: str | None = None, **request: Any) -> BetaMessage:
    return await in_thread(rig, lambda client: client.beta.messages.create(**request), key)


async def _beta_events_async(rig: Rig, key: str | None = None, **request: Any) -> Any:
    async def use(client: AsyncAnthropic) -> Any:
        async with await client.beta.messages.create(stream=True, **request) as stream:
            return life(await listed(stream), BetaRawMessageStreamEvent)

    return await awaited(rig, use, key)


async def _beta_stream(rig: Rig, key: str | None = None, **request: Any) -> BetaMessage:
    def use(client: Anthropic) -> BetaMessage:
        with client.beta.messages.stream(**request) as stream:
            return stream.get_final_message()

    return await in_thread(rig, use, key)


WAYS: dict[str, Way] = {
    "create": _create,
    "create async": _create_async,
    "events": _events,
    "events async": _events_async,
    "stream": _stream,
    "stream async": _stream_async,
    "beta": _beta,
    "beta events async": _beta_events_async,
    "beta stream": _beta_stream,
}
EVERY_WAY = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
WHOLE = frozenset((_create, _create_async, _beta))
"""Those that get the message in one piece."""


def given(message: Any) -> Given:
    """What a message tells."""
    usage = message.usage
    assert (message.type, message.role) == ("message", "assistant")
    assert usage.cache_creation_input_tokens == 0
    return Given(
        id=message.id,
        model=message.model,
        said=tuple(_said(block) for block in message.content),
        finish=message.stop_reason,
        counts=Counts(
            prompt=usage.input_tokens + usage.cache_read_input_tokens,
            cached=usage.cache_read_input_tokens,
            sampled=usage.output_tokens,
            thought=usage.output_tokens_details.thinking_tokens,
        ),
        stop=message.stop_sequence,
    )


def _said(block: Any) -> Part:
    match block.type:
        case "text":
            return ("text", block.text)
        case "thinking":
            assert block.signature
            return ("thinking", block.thinking)
        case "tool_use":
            return ("call", block.name, block.input)
    raise AssertionError(block.type)
