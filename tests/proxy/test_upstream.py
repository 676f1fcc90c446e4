"""What many requests learn of an engine that they meet at once."""

import asyncio

import pytest

from polarproxy.engine.probe import EngineFacts
from polarproxy.proxy.upstream import Upstream
from polarproxy.settings import EngineName, Settings

FACTS = EngineFacts("vllm", "served", models=("served",))


async def test_a_request_that_comes_just_as_the_engine_is_known_knows_it_too(monkeypatch: pytest.MonkeyPatch) -> None:
    answer: asyncio.Future[EngineFacts] = asyncio.get_running_loop().create_future()

    async def discover(_upstream: Upstream, _wanted: EngineName) -> EngineFacts:
        return await answer

    monkeypatch.setattr("polarproxy.proxy.upstream.discover", discover)
    upstream = Upstream("http://127.0.0.1:1", Settings())
    first = asyncio.create_task(upstream.facts())
    await asyncio.sleep(0)
    answer.set_result(FACTS)
    # Its first step comes right behind the one in which the asking ends, before anything that waits for that end.
    second = asyncio.create_task(upstream.facts())
    assert (await first, await second) == (FACTS, FACTS)
    assert upstream.models == ("served",)
