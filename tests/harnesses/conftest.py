"""Starting a coding agent's stage; every such test is marked and skipped where the agents are not installed."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Protocol

import pytest

from tests.harnesses.process import FOLDER, installed
from tests.harnesses.scripted import Rule, Scenario
from tests.harnesses.stage import Harness, Stage, stage


class Opener(Protocol):
    """Gives a stage that ends with the test."""

    async def __call__(self, harness: Harness, *rules: Rule, **settings: Any) -> Stage: ...


@pytest.fixture
async def perform(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Opener]:
    if installed() is None:
        pytest.skip(f"needs the coding agents: export $(.ci/setup-harnesses) sets {FOLDER}")
    async with AsyncExitStack() as stack:

        async def open_stage(harness: Harness, *rules: Rule, **settings: Any) -> Stage:
            opened = await stack.enter_async_context(stage(tmp_path, harness, Scenario(*rules), **settings))
            opened.test = f"{request.path.stem}::{request.node.name}"
            return opened

        yield open_stage
