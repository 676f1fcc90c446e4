"""Work that is finished once it was begun."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Coroutine

_T = TypeVar("_T")


async def undisturbed(work: Coroutine[Any, Any, _T]) -> _T:
    """Finishes the work, however often this task is cancelled meanwhile; a cancellation ends here."""
    task = asyncio.ensure_future(work)
    while not task.done():
        with suppress(asyncio.CancelledError):
            await asyncio.wait((task,))
    return task.result()
