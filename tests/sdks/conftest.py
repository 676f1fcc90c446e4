"""SDKs as judges: a proxy over the fake engine, no telemetry, and no way out of this machine."""

import os
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.fakes import FakeEngine, Turn
from tests.proxy.rig import Rig, Scripted, Starter, rig
from tests.sdks.played import PlayedStarter, playing

# Some SDKs read these when they are imported, which the test modules do after this file.
os.environ.update(
    {
        "AWS_EC2_METADATA_DISABLED": "true",
        "DO_NOT_TRACK": "1",
        "LANGCHAIN_TRACING_V2": "false",
        "LANGSMITH_TRACING": "false",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "LITELLM_TELEMETRY": "False",
        "OPENAI_AGENTS_DISABLE_TRACING": "1",
    }
)


@pytest.fixture
async def start(tmp_path: Path) -> AsyncIterator[Starter]:
    """Starts a fake engine with a script and a proxy with settings; both end with the test."""
    async with AsyncExitStack() as stack:

        async def started(script: Scripted | None = None, **settings: Any) -> Rig:
            return await stack.enter_async_context(rig(tmp_path, script, **settings))

        yield started


@pytest.fixture
async def start_playing(start: Starter) -> AsyncIterator[PlayedStarter]:
    """Starts a proxy over an engine that plays the same turns on its chat route and on that for text completions."""
    async with AsyncExitStack() as stack:

        async def started(*turns: Turn, **settings: Any) -> Rig:
            engine = FakeEngine(playing(*turns), text_script=playing(*turns))
            await stack.enter_async_context(engine)
            return replace(await start(upstream=engine.url, **settings), engine=engine)

        yield started


@pytest.fixture(autouse=True)
def loopback_only(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No SDK looks up any other host, not even in vain."""
    looked_up: list[object] = []
    resolve = socket.getaddrinfo

    def guarded(host: Any, *more: Any, **options: Any) -> Any:
        if host not in (None, "", "127.0.0.1", "::1", "localhost"):
            looked_up.append(host)
            raise socket.gaierror(socket.EAI_NONAME, f"{host}: tests stay on this machine")
        return resolve(host, *more, **options)

    monkeypatch.setattr(socket, "getaddrinfo", guarded)
    yield
    assert looked_up == []
