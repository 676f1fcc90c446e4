"""A runtime of every kind that works here, stopped with the test."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from polarproxy.rollout.runtimes.opening import Runtimes
from polarproxy.rollout.runtimes.protocol import Runtime, Spec
from tests.rollout.runtimes.place import KINDS, Starter


@pytest.fixture(params=KINDS)
async def start(request: pytest.FixtureRequest) -> AsyncIterator[Starter]:
    async with AsyncExitStack() as stack:

        async def started(**spec: object) -> Runtime:
            return await stack.enter_async_context(Runtimes().running(request.param, Spec(**spec)))  # type: ignore[arg-type]

        yield started
