"""Starting what a test needs between client and engine."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.proxy.rig import Rig, Scripted, Starter, rig


@pytest.fixture
async def start(tmp_path: Path) -> AsyncIterator[Starter]:
    """Starts a fake engine with a script and a proxy with settings; both end with the test."""
    async with AsyncExitStack() as stack:

        async def started(script: Scripted | None = None, **settings: Any) -> Rig:
            return await stack.enter_async_context(rig(tmp_path, script, **settings))

        yield started
