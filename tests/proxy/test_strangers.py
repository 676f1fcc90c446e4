"""Engines that never said what they serve, and engines that are late for once: whom a model's calls may go to."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from polarproxy.proxy.upstream import Upstream
from polarproxy.settings import Settings
from tests.bench.process import free_port
from tests.fakes import FakeEngine, always, compose
from tests.proxy.rig import BODY, SECONDS, Rig, rig, until

SMALL, LARGE = BODY | {"model": "small"}, BODY | {"model": "large"}
SETTINGS: dict[str, Any] = {"health_interval": 0.05, "connect_timeout": 2.0}


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as opened, asyncio.timeout(3 * SECONDS):
        yield opened


class Half:
    """A proxy before the engine of a small model, and one of a large model that was not started yet."""

    def __init__(self, stack: AsyncExitStack, folder: Path) -> None:
        self._stack, self._folder, self._port = stack, folder, free_port()
        self.large = f"http://127.0.0.1:{self._port}"

    async def proxy(self, **settings: Any) -> Rig:
        small = await self._stack.enter_async_context(FakeEngine(always(compose("small")), model="small"))
        upstream = f"{small.url},{self.large}"
        return await self._stack.enter_async_context(rig(self._folder, upstream=upstream, **(SETTINGS | settings)))

    async def start_large(self) -> FakeEngine:
        made = FakeEngine(always(compose("large")), model="large", port=self._port)
        return await self._stack.enter_async_context(made)


@pytest.fixture
def half(stack: AsyncExitStack, tmp_path: Path) -> Half:
    return Half(stack, tmp_path)


async def who(one: Rig, body: dict[str, Any]) -> str:
    answer = await one.ask(body)
    assert answer.status == 200, answer.body
    return str(answer.json["choices"][0]["message"]["content"])


async def test_what_an_engine_may_serve_that_was_never_seen_is_served_by_no_other(half: Half) -> None:
    one = await half.proxy()
    assert await who(one, SMALL) == "small"
    for body in (LARGE, BODY | {"model": "gpt-4o"}):
        refused = await one.ask(body)
        assert (refused.status, refused.headers["Retry-After"]) == (503, "2")
        said = f"may: the engine at {half.large} does not answer. Wait for it, or take it out: polarproxy upstreams"
        assert said in refused.error["message"]
    assert {captured.call.served_model for captured in await one.recorded(1)} == {"small"}
    await half.start_large()
    await until(lambda: all(member.trouble is None for member in one.parts.fleet.members))
    assert await who(one, LARGE) == "large"
    # Whoever is refused takes no place.
    assert [captured.call.ordinal for captured in await one.recorded(2)] == [0, 1]
    # Now it is known that nobody serves it.
    assert await who(one, BODY | {"model": "gpt-4o"}) == "small"


async def test_it_can_be_said_that_other_names_are_a_models(half: Half) -> None:
    one = await half.proxy(model_map="*=small,big=large")
    assert await who(one, LARGE) == "small"
    # It goes to whom it may belong, which is away, and not to one that is known not to have it.
    assert (await one.ask(BODY | {"model": "big"})).status == 502


async def test_one_that_was_taken_out_is_not_waited_for(half: Half) -> None:
    one = await half.proxy()
    assert (await one.ask(LARGE)).status == 503
    gone = next(member for member in one.parts.fleet.members if member.name == half.large)
    assert (await one.control("DELETE", f"/api/upstreams/{gone.id}?force=true")).status == 200
    assert await who(one, LARGE) == "small"


async def test_whoever_asks_first_waits_until_each_engine_was_asked(half: Half) -> None:
    """Also many at once, right after the start."""
    large = await half.start_large()
    one = await half.proxy()
    assert {await one_said for one_said in [asyncio.create_task(who(one, LARGE)) for _ in range(5)]} == {"large"}
    assert {json.loads(request.body)["model"] for request in large.requests if "chat" in request.path} == {"large"}


async def upstream_of(stack: AsyncExitStack, engine: FakeEngine) -> Upstream:
    made = Upstream(engine.url, Settings(upstream=engine.url))
    stack.push_async_callback(made.close)
    return made


async def test_one_that_is_late_once_with_what_it_serves_keeps_its_sessions(stack: AsyncExitStack) -> None:
    engine = await stack.enter_async_context(FakeEngine(always(compose("x"))))
    upstream = await upstream_of(stack, engine)
    await upstream.check()
    assert (upstream.trouble, upstream.models) == (None, ("fake",))
    for says in (False, True, False):
        engine.says_models = says
        await upstream.check()
        assert upstream.trouble is None
    await upstream.check()
    assert upstream.trouble is not None
    assert "has not answered 2 checks in a row" in upstream.trouble
    engine.says_models = True
    await upstream.check()
    assert upstream.trouble is None


async def test_one_that_is_asked_anew_what_it_is_may_be_late_once(stack: AsyncExitStack) -> None:
    """After a call that failed."""
    engine = await stack.enter_async_context(FakeEngine(always(compose("x"))))
    upstream = await upstream_of(stack, engine)
    await upstream.facts()
    upstream.doubt()
    engine.says_models = False
    for trouble in (False, True):
        await upstream.facts()
        assert (upstream.trouble is not None) is trouble
    engine.says_models = True
    await upstream.check()
    assert (upstream.trouble, upstream.known is not None) == (None, True)


async def test_one_that_never_said_what_it_serves_is_given_nothing(stack: AsyncExitStack) -> None:
    engine = await stack.enter_async_context(FakeEngine(always(compose("x"))))
    upstream = await upstream_of(stack, engine)
    engine.says_models = False
    await upstream.check()
    assert upstream.trouble == f"the engine at {engine.url} does not answer"
