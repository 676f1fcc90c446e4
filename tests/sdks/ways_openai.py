"""The ways in which the OpenAI SDK can ask for a response: each gives the same object of the end, or something is wrong."""

import asyncio
from collections.abc import AsyncIterable, Awaitable, Callable, Iterable
from typing import Any, TypeVar

import pytest
from openai import AsyncOpenAI, OpenAI
from openai.types.responses import Response, ResponsesServerEvent, ResponseStreamEvent

from tests.proxy.rig import SECONDS, Rig
from tests.sdks.strict import valid

Way = Callable[..., Awaitable[Response]]
"""Takes a rig and the members of a request."""
_T = TypeVar("_T")

LATELY_UNKNOWN = frozenset({"name", "status", "store"})
"""Members of the API that this release of the SDK lacks: of the end of arguments, of a custom call, of a response."""
_LIFE_ENDS = ("response.completed", "response.incomplete", "response.failed", "error")


def access(rig: Rig, **options: Any) -> Any:
    """Arguments of a client in session `s1`."""
    known: dict[str, Any] = {"base_url": f"{rig.base}/s/s1/v1", "api_key": "unused", "timeout": SECONDS}
    return known | {"max_retries": 0} | options


async def in_thread(rig: Rig, use: Callable[[OpenAI], _T], **options: Any) -> _T:
    """What a use of the synchronous client gives."""

    def run() -> _T:
        with OpenAI(**access(rig, **options)) as client:
            return use(client)

    async with asyncio.timeout(SECONDS):
        return await asyncio.to_thread(run)


async def awaited(rig: Rig, use: Callable[[AsyncOpenAI], Awaitable[_T]], **options: Any) -> _T:
    """What a use of the asynchronous client gives."""
    async with asyncio.timeout(SECONDS), AsyncOpenAI(**access(rig, **options)) as client:
        return await use(client)


def life(events: Iterable[Any], kind: Any) -> Response:
    """The response at the end of a stream whose every event is as the API says."""
    seen = [valid(event, kind, known=LATELY_UNKNOWN) for event in events]
    assert [event.sequence_number for event in seen] == list(range(len(seen)))
    assert [event.type for event in seen[:2]] == ["response.created", "response.in_progress"]
    assert [event.type for event in seen if event.type in _LIFE_ENDS] == [seen[-1].type]
    assert all(event.response.id == seen[-1].response.id for event in seen[:2])
    end: Response = seen[-1].response
    done = [event.item for event in seen if event.type == "response.output_item.done"]
    assert [item.to_dict() for item in done] == [item.to_dict() for item in end.output]
    return end


async def _whole(rig: Rig, **request: Any) -> Response:
    return await in_thread(rig, lambda client: client.responses.create(**request))


async def _whole_async(rig: Rig, **request: Any) -> Response:
    return await awaited(rig, lambda client: client.responses.create(**request))


async def _stream(rig: Rig, **request: Any) -> Response:
    def use(client: OpenAI) -> Response:
        with client.responses.create(stream=True, **request) as stream:
            return life(stream, ResponseStreamEvent)

    return await in_thread(rig, use)


async def _stream_async(rig: Rig, **request: Any) -> Response:
    async def use(client: AsyncOpenAI) -> Response:
        async with await client.responses.create(stream=True, **request) as stream:
            return life(await listed(stream), ResponseStreamEvent)

    return await awaited(rig, use)


async def listed(events: AsyncIterable[_T]) -> list[_T]:
    """All of them."""
    return [event async for event in events]


def _socket_turn(connection: Any, request: dict[str, Any]) -> Response:
    connection.response.create(**request)
    events = []
    for event in connection:
        events.append(event)
        if event.type in _LIFE_ENDS:
            break
    return life(events, ResponsesServerEvent)


async def _socket(rig: Rig, **request: Any) -> Response:
    def use(client: OpenAI) -> Response:
        with client.responses.connect() as connection:
            return _socket_turn(connection, request)

    return await in_thread(rig, use)


async def _socket_async(rig: Rig, **request: Any) -> Response:
    async def use(client: AsyncOpenAI) -> Response:
        async with client.responses.connect() as connection:
            return await socket_turn(connection, **request)

    return await awaited(rig, use)


async def socket_turn(connection: Any, **request: Any) -> Response:
    """One turn on a WebSocket."""
    await connection.response.create(**request)
    events = []
    async for event in connection:
        events.append(event)
        if event.type in _LIFE_ENDS:
            break
    return life(events, ResponsesServerEvent)


WAYS: dict[str, Way] = {
    "whole": _whole,
    "whole async": _whole_async,
    "stream": _stream,
    "stream async": _stream_async,
    "socket": _socket,
    "socket async": _socket_async,
}
EVERY_WAY = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
STREAMED = frozenset(WAYS.values()) - {_whole, _whole_async}
"""Those that get the response piece by piece."""
