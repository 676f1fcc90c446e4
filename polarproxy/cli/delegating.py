"""A proxy's tasks as the delegate of a trainer: its queues and the worker between them."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

from polarproxy.cli.output import errors
from polarproxy.errors import BadRequest
from polarproxy.proxy.keys import is_session_id
from polarproxy.rollout.delegate.generation import Generation
from polarproxy.rollout.delegate.handed_out import HandedOut
from polarproxy.rollout.delegate.sqs import SqsQueue
from polarproxy.rollout.delegate.worker import Delegate, Pace

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from polarproxy.cli.rollouts import RolloutService
    from polarproxy.proxy.keys import Signer
    from polarproxy.proxy.parts import Parts

_SPARE = 16


def key_of(signer: Signer, session_id: str) -> str:
    """The key of a session; raises `BadRequest` for what can be the name of none."""
    if not is_session_id(session_id):
        raise BadRequest(f"{session_id!r} cannot name a session")
    return signer.key(session_id)


@asynccontextmanager
async def delegating(parts: Parts, service: RolloutService, base: str) -> AsyncIterator[None]:
    """Works off requests until the block ends, if queues were named. Raises `BadSettings` for one that cannot be used."""
    settings = parts.settings
    if settings.delegate_requests is None or settings.delegate_responses is None:
        yield
        return
    async with AsyncExitStack() as stack:
        requests, responses = [
            stack.enter_context(await asyncio.to_thread(SqsQueue, url))
            for url in (settings.delegate_requests, settings.delegate_responses)
        ]
        worker = Delegate(
            requests,
            responses,
            HandedOut(service.store, service.records, service.workshop.check, lambda: service.runner.wake()),
            await stack.enter_async_context(Generation(base, partial(key_of, parts.signer))),
            Pace(most=2 * settings.rollouts + _SPARE),
            lambda text: errors.print(f"delegate: {text}", style="yellow", markup=False),
        )
        working = asyncio.create_task(worker.run())
        try:
            yield
        finally:
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)
