"""Starting what a test needs between client and engine."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, TypeAlias

import pytest
import uvloop

from tests.proxy.rig import Rig, Scripted, Starter, rig

LoopFactory: TypeAlias = Callable[[], asyncio.AbstractEventLoop]


def pytest_asyncio_loop_factories(config: pytest.Config, item: pytest.Item) -> dict[str, LoopFactory]:
    """The event loop that `serve` runs on, which differs from Python's own in its transports and their errors."""
    return {"uvloop": uvloop.new_event_loop}


@pytest.fixture
async def start(tmp_path: Path) -> AsyncIterator[Starter]:
    """Starts a fake engine with a script and a proxy with settings; both end with the test."""
    async with AsyncExitStack() as stack:

        async def started(script: Scripted | None = None, **settings: Any) -> Rig:
            return await stack.enter_async_context(rig(tmp_path, script, **settings))

        yield started
